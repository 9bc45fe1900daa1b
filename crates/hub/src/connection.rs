//! What every connection needs: certificates, the way through a proxy, a name.

use std::sync::Arc;

use ureq::config::ConfigBuilder;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::typestate::AgentScope;
use ureq::{Agent, Proxy};

use crate::error::{Error, Result};

/// Settings of connections to `host`, with the system's certificates: a status of failure is an answer, and redirects are
/// the caller's to follow.
///
/// # Errors
/// If certificates are needed and there are none.
pub fn connection(host: &str, secure: bool) -> Result<ConfigBuilder<AgentScope>> {
    let found = rustls_native_certs::load_native_certs().certs;
    if found.is_empty() && secure {
        let why = "this system has no certificates; install ca-certificates".into();
        return Err(Error::Tls { host: host.to_owned(), why });
    }
    let roots: Vec<Certificate<'static>> =
        found.iter().map(|c| Certificate::from_der(c).to_owned()).collect();
    let tls = TlsConfig::builder()
        .root_certs(RootCerts::from(roots))
        .unversioned_rustls_crypto_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .build();
    let local = ["localhost", "127.", "[::1]"].iter().any(|name| host.starts_with(name));
    Ok(Agent::config_builder()
        .tls_config(tls)
        // A proxy cannot mean the same machine by these names.
        .proxy(if local { None } else { Proxy::try_from_env() })
        .user_agent(concat!("shardwright/", env!("CARGO_PKG_VERSION")))
        .http_status_as_error(false)
        .max_redirects(0))
}
