//! The application: what all requests share, and the routes.

use crate::answer::Patience;
use crate::error::ApiError;
use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::options::Options;
use crate::sampling::Defaults;
use crate::{anthropic, auth, cors, hosts, openai, ops, page, trace};
use axum::Router;
use axum::extract::FromRequestParts;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::IntoResponse;
use shardwright_engine::replicas::Replicas;
use shardwright_engine::request::Pooling;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use utoipa::OpenApi;
use utoipa_axum::router::OpenApiRouter;

/// A model that runs.
#[derive(Debug)]
pub struct Service {
    /// Run it.
    pub engine: Replicas,
    /// Knows its words.
    pub model: Model,
    pub(crate) defaults: Defaults,
    pub(crate) patience: Patience,
    pub(crate) pooling: Pooling,
}

/// What all requests share.
#[derive(Debug)]
pub struct App {
    /// May requests come in?
    pub gate: Gate,
    pub(crate) options: Options,
    bound: SocketAddr,
    pub(crate) metrics: Arc<Metrics>,
    service: OnceLock<Arc<Service>>,
}

/// The application, in many hands.
pub type Shared = Arc<App>;

/// The service, once it is open.
#[derive(Clone, Debug)]
pub(crate) struct Open(pub(crate) Arc<Service>);

impl App {
    /// Without a model yet; `bound` is where it listens.
    pub fn new(options: Options, bound: SocketAddr) -> Shared {
        let metrics = Arc::new(Metrics::new(&options.metrics_prefix, &options.model));
        Arc::new(App { gate: Gate::new(), options, bound, metrics, service: OnceLock::new() })
    }

    /// From now on there is a model; the gate is opened apart.
    pub fn install(&self, engine: Replicas, model: Model) {
        let Options { defaults, patience, pooling, .. } = self.options.clone();
        // A second one would be our own fault, and changes nothing.
        let _ = self.service.set(Arc::new(Service { engine, model, defaults, patience, pooling }));
    }

    /// Is nothing but the name that a request asks by in the way of strangers?
    pub(crate) fn trusts_hosts_only(&self) -> bool {
        self.options.api_keys.is_empty() && self.bound.ip().to_canonical().is_loopback()
    }

    /// The service, open or not.
    pub(crate) fn service(&self) -> Option<&Arc<Service>> {
        self.service.get()
    }
}

impl FromRequestParts<Shared> for Open {
    type Rejection = ApiError;

    async fn from_request_parts(_: &mut Parts, app: &Shared) -> Result<Open, ApiError> {
        app.gate.check()?;
        let service = app.service().ok_or_else(|| ApiError::unavailable("there is no model yet", 1))?;
        Ok(Open(service.clone()))
    }
}

/// Work that may take long: it must not keep others waiting.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let span = tracing::Span::current();
    let done = tokio::task::spawn_blocking(move || span.in_scope(work)).await;
    done.unwrap_or_else(|_| Err(broken()))
}

/// Our own fault; what it was is for the log.
fn broken() -> ApiError {
    ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal error of the server; its log says more")
}

#[derive(OpenApi)]
#[openapi(
    info(title = "Shardwright", description = "The APIs that clients of OpenAI, vLLM and llama.cpp know."),
    components(schemas(crate::error::ErrorBody, crate::anthropic::error::MessageError, openai::chat::ChatChunk)),
    tags(
        (name = "openai", description = "OpenAI's endpoints"),
        (name = "anthropic", description = "Anthropic's endpoints"),
        (name = "text", description = "Words to ids and back, as vLLM and llama-server do"),
        (name = "operation", description = "For those who run the server"),
    )
)]
struct Description;

/// All routes, and their description.
pub fn router(app: &Shared) -> Router {
    let routes = OpenApiRouter::with_openapi(Description::openapi())
        .merge(openai::routes())
        .merge(anthropic::routes())
        .merge(ops::routes());
    let (router, mut description) = routes.split_for_parts();
    description.info.version.clone_from(&app.options.version);
    let description = Arc::new(description);
    router
        .merge(page::routes())
        .route(
            "/openapi.json",
            axum::routing::get(move || async move { axum::Json(description.as_ref()).into_response() }),
        )
        .fallback(|| async { ApiError::new(StatusCode::NOT_FOUND, "there is nothing at this path") })
        .method_not_allowed_fallback(|| async {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this path does not take this method")
        })
        .layer(from_fn_with_state(app.clone(), auth::check))
        .layer(from_fn_with_state(app.clone(), hosts::check))
        .layer(tower_http::catch_panic::CatchPanicLayer::custom(|_| broken().into_response()))
        .layer(cors::layer(&app.options.origins))
        .layer(from_fn_with_state(app.clone(), trace::trace))
        .layer(from_fn(anthropic::error::form))
        .with_state(app.clone())
}
