#!/usr/bin/env bash
# What curl sees of a running server: transcripts.sh ADDRESS MODEL
set -euo pipefail
base=$1 model=$2
json=(-sS -H 'content-type: application/json')

expect() { # WHAT PATTERN TEXT
    if ! grep -qE "$2" <<<"$3"; then
        printf '%s: expected %s, got:\n%s\n' "$1" "$2" "$3"
        exit 1
    fi
}

expect health '"status":"ready"' "$(curl -sS "$base/health")"
expect models "\"id\":\"$model\"" "$(curl -sS "$base/v1/models")"
expect version '"version":"[0-9]' "$(curl -sS "$base/version")"
expect metrics '^shardwright:prompt_tokens_total' "$(curl -sS "$base/metrics")"
body='{"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 8}'
expect chat '"object":"chat.completion"' "$(curl "${json[@]}" "$base/v1/chat/completions" -d "$body")"
stream=$(curl "${json[@]}" -N -i "$base/v1/chat/completions" -d "${body%\}}, \"stream\": true}")
expect 'stream, type' '^content-type: text/event-stream' "$stream"
expect 'stream, role' '^data: .*"delta":\{"role":"assistant"' "$stream"
expect 'stream, end' '^data: \[DONE\]' "$stream"
expect ids '"count":[0-9]' "$(curl "${json[@]}" "$base/tokenize" -d '{"prompt": "Hello"}')"
expect 'no JSON' '"type":"invalid_request_error"' "$(curl "${json[@]}" "$base/v1/chat/completions" -d '{')"
expect 'no such path' '^HTTP/1.1 404' "$(curl -sS -i "$base/nowhere")"
expect 'wrong type' '^HTTP/1.1 415' "$(curl -sS -i "$base/v1/completions" -d '{"prompt": "x"}')"
expect 'large body' '^HTTP/1.1 413' "$(head -c 70000000 /dev/zero | curl "${json[@]}" -i -H 'expect:' "$base/v1/completions" --data-binary @-)"
echo "curl passed"
