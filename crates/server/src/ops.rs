//! For those who run the server: is it well, what is it, how much does it do.

use crate::app::{Service, Shared};
use crate::gate::Phase;
use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use shardwright_engine::engine::Engine;
use std::sync::Arc;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// All of them.
pub(crate) fn routes() -> OpenApiRouter<Shared> {
    OpenApiRouter::new()
        .routes(routes!(health))
        .routes(routes!(ready))
        .routes(routes!(live))
        .routes(routes!(version))
        .routes(routes!(metrics))
}

/// How the service is.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    /// `ready`, `loading`, `testing`, `draining` or `failed`.
    status: &'static str,
    /// More about it.
    message: String,
}

fn state(phase: &Phase) -> Response {
    let health = Json(Health { status: phase.name(), message: phase.to_string() });
    match phase {
        Phase::Ready => health.into_response(),
        _ => {
            let mut response = (StatusCode::SERVICE_UNAVAILABLE, health).into_response();
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            response
        }
    }
}

/// Are requests answered? A full queue is no illness.
#[utoipa::path(get, path = "/health", tag = "operation",
    responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn health(State(app): State<Shared>) -> Response {
    state(&app.gate.phase())
}

/// The same, under the name that orchestration asks for.
#[utoipa::path(get, path = "/ready", tag = "operation",
    responses((status = 200, body = Health), (status = 503, body = Health)))]
async fn ready(State(app): State<Shared>) -> Response {
    state(&app.gate.phase())
}

/// Is there a process? While a model is loaded, too.
#[utoipa::path(get, path = "/live", tag = "operation", responses((status = 200, body = Health)))]
async fn live(State(app): State<Shared>) -> Response {
    let phase = app.gate.phase();
    Json(Health { status: phase.name(), message: phase.to_string() }).into_response()
}

/// What this is.
#[derive(Debug, Serialize, ToSchema)]
struct Version {
    /// Version and commit.
    version: String,
}

/// Version and commit of the program.
#[utoipa::path(get, path = "/version", tag = "operation", responses((status = 200, body = Version)))]
async fn version(State(app): State<Shared>) -> Response {
    Json(Version { version: app.options.version.clone() }).into_response()
}

/// Numbers for Prometheus, under vLLM's names.
#[utoipa::path(get, path = "/metrics", tag = "operation",
    responses((status = 200, body = String, content_type = "application/openmetrics-text")))]
async fn metrics(State(app): State<Shared>) -> Response {
    let stats = |service: &Arc<Service>| service.engine.all().iter().map(Engine::stats).collect::<Vec<_>>();
    let stats = app.service().map(stats).unwrap_or_default();
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.metrics.text(&stats)).into_response()
}
