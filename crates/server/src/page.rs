//! The page at `/`: a chat for people, and the engine's numbers. All of it is in the binary.

use crate::app::Shared;
use axum::Router;
use axum::http::header;
use axum::routing::get;

/// Nothing from elsewhere, nothing inline: what a model writes could not run even if it became HTML.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const SCRIPT: &str = "text/javascript; charset=utf-8";

/// Path, type, text.
const FILES: [(&str, &str, &str); 9] = [
    ("/", "text/html; charset=utf-8", include_str!("../page/index.html")),
    ("/page/style.css", "text/css; charset=utf-8", include_str!("../page/style.css")),
    ("/page/icon.svg", "image/svg+xml", include_str!("../page/icon.svg")),
    ("/page/app.js", SCRIPT, include_str!("../page/app.js")),
    ("/page/api.js", SCRIPT, include_str!("../page/api.js")),
    ("/page/markdown.js", SCRIPT, include_str!("../page/markdown.js")),
    ("/page/panel.js", SCRIPT, include_str!("../page/panel.js")),
    ("/page/store.js", SCRIPT, include_str!("../page/store.js")),
    ("/page/view.js", SCRIPT, include_str!("../page/view.js")),
];

/// The files. They hold no secret, and ask for a key themselves.
pub(crate) fn routes() -> Router<Shared> {
    FILES.iter().fold(Router::new(), |router, (path, kind, text)| {
        let headers = [
            (header::CONTENT_TYPE, *kind),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::CACHE_CONTROL, "no-cache"),
        ];
        router.route(path, get(move || async move { (headers, *text) }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_that_the_page_names_is_there() {
        let served: Vec<&str> = FILES.iter().map(|(path, ..)| *path).collect();
        let named = FILES.iter().flat_map(|(_, _, text)| {
            let parts = text.split('"').filter(|part| part.starts_with("/page/") || part.starts_with("./"));
            parts.map(|part| part.replacen("./", "/page/", 1))
        });
        let named: Vec<String> = named.collect();
        assert!(named.len() >= 8, "{named:?}");
        for name in named {
            assert!(served.contains(&name.as_str()), "{name} is not served");
        }
    }

    #[test]
    fn nothing_becomes_html_and_nothing_comes_from_elsewhere() {
        for (path, kind, text) in FILES {
            for word in
                ["innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "Function(", "//cdn"]
            {
                assert!(!text.contains(word), "{path}: {word}");
            }
            if kind.starts_with("text/html") {
                for word in
                    ["style=", " onclick", " onload", "src=\"http", "href=\"http", "<script>", "<style"]
                {
                    assert!(!text.contains(word), "{path}: {word}");
                }
            }
        }
    }
}
