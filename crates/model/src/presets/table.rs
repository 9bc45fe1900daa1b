//! The table: what the headers of well-known models say.

/// Where sparse-attention indexers are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Index {
    /// Nowhere, or as the description says.
    Plain,
    /// Files carry the tensors on every block, the next-token block included, and each layer selects.
    Everywhere,
    /// Files carry the tensors on every block, but only layers 0, 1, 2, 6, 10, ... select.
    Shared,
}

/// A model: its own keys behind those of the row it is `like`.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) like: Option<&'static str>,
    /// `key=value` without the architecture's prefix, separated by white space; `key=-` takes a key away.
    pub(super) keys: &'static str,
    /// Tensors that are there (or not) against the usual, by the end of their names.
    pub(super) has: &'static [(&'static str, bool)],
    pub(super) index: Index,
}

const fn row(name: &'static str, title: &'static str, keys: &'static str) -> Row {
    Row { name, title, like: None, keys, has: &[], index: Index::Plain }
}

const fn like(name: &'static str, title: &'static str, base: &'static str, keys: &'static str) -> Row {
    Row { like: Some(base), ..row(name, title, keys) }
}

const TIED: &[(&str, bool)] = &[("output.weight", false)];
const QKV_BIAS: &[(&str, bool)] = &[("attn_q.bias", true), ("attn_k.bias", true), ("attn_v.bias", true)];
const QKV_BIAS_NORM: &[(&str, bool)] =
    &[("attn_q.bias", true), ("attn_k.bias", true), ("attn_v.bias", true), ("attn_q_norm.weight", true)];
const UNBIASED_ROUTER: &[(&str, bool)] = &[("exp_probs_b.bias", false)];

/// Every preset; a row stands behind the row that it is like.
pub(super) const ROWS: &[Row] = &[
    Row {
        index: Index::Everywhere,
        ..row(
            "glm-5",
            "GLM-5",
            "general.architecture=glm-dsa block_count=79 nextn_predict_layers=1 context_length=202752
             embedding_length=6144 feed_forward_length=12288 vocab_size=154880
             attention.head_count=64 attention.head_count_kv=1 attention.q_lora_rank=2048
             attention.kv_lora_rank=512 attention.key_length=576 attention.value_length=512
             attention.key_length_mla=256 attention.value_length_mla=256 attention.layer_norm_rms_epsilon=1e-5
             rope.dimension_count=64 rope.freq_base=1000000.0 leading_dense_block_count=3
             expert_count=256 expert_used_count=8 expert_shared_count=1 expert_feed_forward_length=2048
             expert_gating_func=2 expert_weights_norm=true expert_weights_scale=2.5
             expert_group_count=1 expert_group_used_count=1
             attention.indexer.head_count=32 attention.indexer.key_length=128 attention.indexer.top_k=2048",
        )
    },
    Row { index: Index::Everywhere, ..like("glm-5.1", "GLM-5.1", "glm-5", "") },
    Row {
        index: Index::Shared,
        ..like("glm-5.2", "GLM-5.2", "glm-5", "context_length=1048576 rope.freq_base=8000000.0")
    },
    row(
        "glm-4.7-flash",
        "GLM-4.7-Flash",
        "general.architecture=deepseek2 block_count=48 nextn_predict_layers=1 context_length=202752
         embedding_length=2048 feed_forward_length=10240 vocab_size=154880
         attention.head_count=20 attention.head_count_kv=1 attention.q_lora_rank=768 attention.kv_lora_rank=512
         attention.key_length=576 attention.value_length=512 attention.key_length_mla=256
         attention.value_length_mla=256 attention.layer_norm_rms_epsilon=1e-5 rope.dimension_count=64
         rope.freq_base=1000000.0 leading_dense_block_count=1 expert_count=64 expert_used_count=4
         expert_shared_count=1 expert_feed_forward_length=1536 expert_gating_func=2 expert_weights_norm=true
         expert_weights_scale=1.8 expert_group_count=1 expert_group_used_count=1",
    ),
    Row {
        has: QKV_BIAS_NORM,
        ..row(
            "glm-4.5",
            "GLM-4.5 (355B)",
            "general.architecture=glm4moe block_count=93 nextn_predict_layers=1 context_length=131072
             embedding_length=5120 feed_forward_length=12288 vocab_size=151552 attention.head_count=96
             attention.head_count_kv=8 attention.key_length=128 attention.value_length=128
             attention.layer_norm_rms_epsilon=1e-5 rope.dimension_count=64 rope.freq_base=1000000.0
             leading_dense_block_count=3 expert_count=160 expert_used_count=8 expert_shared_count=1
             expert_feed_forward_length=1536 expert_gating_func=2 expert_weights_norm=true
             expert_weights_scale=2.5",
        )
    },
    Row {
        has: QKV_BIAS,
        ..like(
            "glm-4.5-air",
            "GLM-4.5-Air (106B)",
            "glm-4.5",
            "block_count=47 embedding_length=4096 feed_forward_length=10944 leading_dense_block_count=1
             expert_count=128 expert_feed_forward_length=1408 expert_weights_scale=1.0",
        )
    },
    row(
        "deepseek-v3",
        "DeepSeek-V3, R1",
        "general.architecture=deepseek2 block_count=61 context_length=163840 embedding_length=7168
         feed_forward_length=18432 vocab_size=129280 attention.head_count=128 attention.head_count_kv=1
         attention.q_lora_rank=1536 attention.kv_lora_rank=512 attention.key_length=576
         attention.value_length=512 attention.key_length_mla=192 attention.value_length_mla=128
         attention.layer_norm_rms_epsilon=1e-6 rope.dimension_count=64 rope.freq_base=10000.0
         rope.scaling.type=yarn rope.scaling.factor=40.0 rope.scaling.original_context_length=4096
         rope.scaling.yarn_log_multiplier=0.1 leading_dense_block_count=3 expert_count=256
         expert_used_count=8 expert_shared_count=1 expert_feed_forward_length=2048 expert_gating_func=2
         expert_weights_norm=true expert_weights_scale=2.5 expert_group_count=8 expert_group_used_count=4",
    ),
    like(
        "deepseek-v3.2",
        "DeepSeek-V3.2",
        "deepseek-v3",
        "general.architecture=deepseek32 attention.indexer.head_count=64 attention.indexer.key_length=128
         attention.indexer.top_k=2048",
    ),
    like(
        "kimi-k2",
        "Kimi-K2",
        "deepseek-v3",
        "context_length=131072 vocab_size=163840 attention.head_count=64 leading_dense_block_count=1
         expert_count=384 expert_weights_scale=2.827 expert_group_count=1 expert_group_used_count=1
         rope.freq_base=50000.0 rope.scaling.factor=32.0",
    ),
    Row {
        has: UNBIASED_ROUTER,
        ..like(
            "deepseek-v2",
            "DeepSeek-V2",
            "deepseek-v3",
            "block_count=60 embedding_length=5120 feed_forward_length=12288 vocab_size=102400
             leading_dense_block_count=1 expert_count=160 expert_used_count=6 expert_shared_count=2
             expert_feed_forward_length=1536 expert_gating_func=1 expert_weights_norm=false
             expert_weights_scale=16.0 expert_group_count=- expert_group_used_count=-
             rope.scaling.yarn_log_multiplier=0.0707",
        )
    },
    Row {
        has: UNBIASED_ROUTER,
        ..like(
            "deepseek-v2-lite",
            "DeepSeek-V2-Lite",
            "deepseek-v2",
            "block_count=27 embedding_length=2048 feed_forward_length=10944 attention.head_count=16
             attention.q_lora_rank=- expert_count=64 expert_feed_forward_length=1408
             expert_weights_scale=1.0",
        )
    },
    row(
        "llama-3-8b",
        "Llama-3-8B",
        "general.architecture=llama block_count=32 context_length=8192 embedding_length=4096
         feed_forward_length=14336 vocab_size=128256 attention.head_count=32 attention.head_count_kv=8
         attention.layer_norm_rms_epsilon=1e-5 rope.dimension_count=128 rope.freq_base=500000.0",
    ),
    Row {
        has: TIED,
        ..like(
            "smollm2-135m",
            "SmolLM2-135M",
            "llama-3-8b",
            "block_count=30 embedding_length=576 feed_forward_length=1536 vocab_size=49152
             attention.head_count=9 attention.head_count_kv=3 rope.dimension_count=64 rope.freq_base=100000.0",
        )
    },
    row(
        "qwen3-8b",
        "Qwen3-8B",
        "general.architecture=qwen3 block_count=36 context_length=40960 embedding_length=4096
         feed_forward_length=12288 vocab_size=151936 attention.head_count=32 attention.head_count_kv=8
         attention.key_length=128 attention.value_length=128 attention.layer_norm_rms_epsilon=1e-6
         rope.freq_base=1000000.0",
    ),
    like(
        "qwen3-30b-a3b",
        "Qwen3-30B-A3B",
        "qwen3-8b",
        "general.architecture=qwen3moe block_count=48 embedding_length=2048 feed_forward_length=6144
         attention.head_count_kv=4 expert_count=128 expert_used_count=8 expert_feed_forward_length=768",
    ),
    Row { index: Index::Everywhere, ..like("tiny-glm-dsa", "tiny GLM-5", "glm-5", TINY_DSA) },
    Row {
        index: Index::Shared,
        ..like("tiny-glm-5.2", "tiny GLM-5.2, shared indexers", "tiny-glm-dsa", "block_count=8")
    },
    like(
        "tiny-deepseek2",
        "tiny DeepSeek-V3",
        "deepseek-v3",
        "block_count=3 context_length=4096 embedding_length=256 feed_forward_length=512 vocab_size=512
         attention.head_count=8 attention.q_lora_rank=256 attention.kv_lora_rank=256 attention.key_length=288
         attention.value_length=256 attention.key_length_mla=96 attention.value_length_mla=64
         rope.dimension_count=32 rope.scaling.original_context_length=512 leading_dense_block_count=1
         expert_count=16 expert_used_count=4 expert_feed_forward_length=256 expert_group_count=4
         expert_group_used_count=2",
    ),
    like(
        "tiny-deepseek32",
        "tiny DeepSeek-V3.2",
        "tiny-deepseek2",
        "general.architecture=deepseek32 attention.indexer.head_count=4 attention.indexer.key_length=64
         attention.indexer.top_k=32",
    ),
    Row {
        has: UNBIASED_ROUTER,
        ..like(
            "tiny-deepseek2-lite",
            "tiny DeepSeek-V2-Lite",
            "tiny-deepseek2",
            "attention.q_lora_rank=- expert_shared_count=2 expert_gating_func=1 expert_weights_norm=false
             expert_weights_scale=1.0 expert_group_count=- expert_group_used_count=-",
        )
    },
    Row {
        has: QKV_BIAS_NORM,
        ..like(
            "tiny-glm4moe",
            "tiny GLM-4.5",
            "glm-4.5",
            "block_count=4 context_length=4096 embedding_length=256 feed_forward_length=512 vocab_size=512
             attention.head_count=8 attention.head_count_kv=2 attention.key_length=64
             attention.value_length=64 rope.dimension_count=32 leading_dense_block_count=1 expert_count=8
             expert_used_count=2 expert_feed_forward_length=256",
        )
    },
    like(
        "tiny-llama",
        "tiny Llama 3",
        "llama-3-8b",
        "block_count=3 context_length=4096 embedding_length=256 feed_forward_length=512 vocab_size=512
         attention.head_count=8 attention.head_count_kv=2 attention.key_length=64 attention.value_length=64
         rope.dimension_count=64",
    ),
    like(
        "tiny-mixtral",
        "tiny Mixtral",
        "tiny-llama",
        "expert_count=4 expert_used_count=2 expert_feed_forward_length=-",
    ),
    Row {
        has: TIED,
        ..like("tiny-smollm3", "tiny SmolLM3", "tiny-llama", "general.architecture=smollm3 block_count=5")
    },
    Row {
        has: QKV_BIAS,
        ..like("tiny-qwen2", "tiny Qwen2.5", "tiny-llama", "general.architecture=qwen2 rope.dimension_count=-")
    },
    like(
        "tiny-qwen3",
        "tiny Qwen3",
        "qwen3-8b",
        "block_count=3 context_length=4096 embedding_length=256 feed_forward_length=512 vocab_size=512
         attention.head_count=8 attention.head_count_kv=2 attention.key_length=64 attention.value_length=64",
    ),
    like(
        "tiny-qwen3moe",
        "tiny Qwen3-30B-A3B",
        "tiny-qwen3",
        "general.architecture=qwen3moe expert_count=8 expert_used_count=2 expert_feed_forward_length=256",
    ),
];

const TINY_DSA: &str =
    "block_count=4 context_length=4096 embedding_length=256 feed_forward_length=512 vocab_size=512
     attention.head_count=8 attention.q_lora_rank=256 attention.kv_lora_rank=256 attention.key_length=288
     attention.value_length=256 attention.key_length_mla=96 attention.value_length_mla=64
     rope.dimension_count=32 leading_dense_block_count=1 expert_count=8 expert_used_count=2
     expert_feed_forward_length=256 attention.indexer.head_count=4 attention.indexer.key_length=64
     attention.indexer.top_k=32";
