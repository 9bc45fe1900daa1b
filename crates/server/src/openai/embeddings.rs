//! `/v1/embeddings`: texts to vectors.

use crate::answer::{Answers, News};
use crate::app::{Open, Service, Shared, off_thread};
use crate::body::{FromJson, JsonBody, part};
use crate::error::{ApiError, Errors};
use crate::openai::completions::{PromptField, few};
use axum::Json;
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use shardwright_engine::request::Request;
use utoipa::ToSchema;

/// Texts to turn into vectors.
#[derive(Debug, Deserialize, Serialize, ToSchema)]
pub(crate) struct EmbeddingRequest {
    /// One of the model's names.
    model: Option<String>,
    /// A text, token ids, or a list of either.
    input: PromptField,
    /// `float` or `base64`.
    encoding_format: Option<Encoding>,
    /// Vectors have the model's own width.
    dimensions: Option<u32>,
}

/// How numbers are written.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    Float,
    Base64,
}

impl FromJson for EmbeddingRequest {
    fn from_json(object: &Map<String, Value>) -> Result<Self, ApiError> {
        part(object)
    }
}

/// Vectors.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EmbeddingList {
    /// `list`.
    object: &'static str,
    /// One entry a text.
    data: Vec<Embedding>,
    /// The model's name.
    model: String,
    /// Tokens.
    usage: EmbeddingUsage,
}

/// The vector of a text, of length 1.
#[derive(Debug, Serialize, ToSchema)]
struct Embedding {
    /// `embedding`.
    object: &'static str,
    /// The place of the text.
    index: usize,
    /// Its numbers.
    embedding: Vector,
}

/// Numbers, or 32-bit numbers (little-endian) in base64.
#[derive(Debug, Serialize, ToSchema)]
#[serde(untagged)]
enum Vector {
    Floats(Vec<f32>),
    Base64(String),
}

/// Tokens of texts.
#[derive(Debug, Serialize, ToSchema)]
struct EmbeddingUsage {
    /// Of all texts.
    prompt_tokens: usize,
    /// The same.
    total_tokens: usize,
}

impl EmbeddingRequest {
    fn requests(&self, service: &Service) -> Result<Vec<Request>, ApiError> {
        service.model.check_name(self.model.as_deref())?;
        if self.dimensions.is_some() {
            return Err(ApiError::unsupported("dimensions", "vectors have the model's own width"));
        }
        let model = &service.model;
        let of = |text: &String| model.raw(text).map(|p| p.ids);
        let prompts: Vec<Vec<u32>> = match &self.input {
            PromptField::Text(text) => vec![of(text)?],
            PromptField::Texts(texts) => {
                few("input", texts.len())?;
                texts.iter().map(of).collect::<Result<_, _>>()?
            }
            PromptField::Ids(ids) => vec![ids.clone()],
            PromptField::Lists(lists) => {
                few("input", lists.len())?;
                lists.clone()
            }
        };
        if prompts.is_empty() || prompts.iter().any(Vec::is_empty) {
            return Err(ApiError::field("input", "`input` is empty, or one of its texts is"));
        }
        let pooled = |prompt| Request { pooling: Some(service.pooling), ..Request::new(prompt) };
        Ok(prompts.into_iter().map(pooled).collect())
    }
}

/// The vectors of texts: the model's last hidden states, pooled.
#[utoipa::path(post, path = "/v1/embeddings", tag = "openai", request_body = EmbeddingRequest,
    responses((status = 200, body = EmbeddingList), Errors))]
pub(crate) async fn create(
    State(app): State<Shared>,
    Open(service): Open,
    JsonBody(request): JsonBody<EmbeddingRequest>,
) -> Result<Json<EmbeddingList>, ApiError> {
    let preparing = service.clone();
    let encoding = request.encoding_format.unwrap_or(Encoding::Float);
    let requests = off_thread(move || request.requests(&preparing)).await?;
    let prompt_tokens = requests.iter().map(|r| r.prompt.len()).sum();
    let mut vectors = vec![Vec::new(); requests.len()];
    let mut answers = Answers::start(&service, &app.metrics, requests)?;
    while let Some(news) = answers.next().await {
        if let (index, News::Done(done)) = news? {
            vectors[index] = normal(done.embedding.unwrap_or_default());
        }
    }
    let embedding = |(index, floats): (usize, Vec<f32>)| Embedding {
        object: "embedding",
        index,
        embedding: match encoding {
            Encoding::Float => Vector::Floats(floats),
            Encoding::Base64 => {
                let bytes: Vec<u8> = floats.iter().flat_map(|x| x.to_le_bytes()).collect();
                Vector::Base64(STANDARD.encode(bytes))
            }
        },
    };
    Ok(Json(EmbeddingList {
        object: "list",
        data: vectors.into_iter().enumerate().map(embedding).collect(),
        model: service.model.name().to_owned(),
        usage: EmbeddingUsage { prompt_tokens, total_tokens: prompt_tokens },
    }))
}

/// Of length 1, if it has any length.
fn normal(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
    if length > 0.0 {
        vector.iter_mut().for_each(|x| *x = (f64::from(*x) / length) as f32);
    }
    vector
}
