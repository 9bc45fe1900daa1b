//! `/v1/models`: what can be asked.

use crate::app::Open;
use crate::error::{ApiError, Errors};
use crate::model::Model;
use axum::Json;
use axum::extract::Path;
use serde::Serialize;
use utoipa::ToSchema;

/// All models.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelList {
    /// `list`.
    object: &'static str,
    /// One entry a name.
    data: Vec<ModelCard>,
}

/// A model under one of its names.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ModelCard {
    /// The name to ask for.
    id: String,
    /// `model`.
    object: &'static str,
    /// When it was loaded, in seconds since 1970.
    created: u64,
    /// `shardwright`.
    owned_by: &'static str,
    /// The model's own name.
    root: String,
    /// Most tokens of prompt and answer.
    max_model_len: usize,
}

fn card(model: &Model, name: &str) -> ModelCard {
    ModelCard {
        id: name.to_owned(),
        object: "model",
        created: model.created(),
        owned_by: "shardwright",
        root: model.name().to_owned(),
        max_model_len: model.context(),
    }
}

/// The names of the model.
#[utoipa::path(get, path = "/v1/models", tag = "openai", responses((status = 200, body = ModelList), Errors))]
pub(crate) async fn list(Open(service): Open) -> Json<ModelList> {
    let model = &service.model;
    Json(ModelList { object: "list", data: model.names().iter().map(|name| card(model, name)).collect() })
}

/// One name of the model.
#[utoipa::path(get, path = "/v1/models/{model}", tag = "openai", params(("model" = String, Path, description = "A name")),
    responses((status = 200, body = ModelCard), Errors))]
pub(crate) async fn one(Open(service): Open, Path(name): Path<String>) -> Result<Json<ModelCard>, ApiError> {
    service.model.check_name(Some(&name))?;
    Ok(Json(card(&service.model, &name)))
}
