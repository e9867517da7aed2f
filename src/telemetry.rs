//! Logs: to standard error, as text for people or as JSON for collectors. The filter is `RUST_LOG`, `info` when absent.

use crate::cli::LogFormat;
use tracing_subscriber::{EnvFilter, fmt, prelude::*};

/// Installs the subscriber for the whole process; a second call changes nothing.
pub fn init(format: LogFormat) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let registry = tracing_subscriber::registry().with(filter);
    let result = match format {
        LogFormat::Text => registry
            .with(fmt::layer().with_writer(std::io::stderr))
            .try_init(),
        LogFormat::Json => registry
            .with(fmt::layer().json().with_writer(std::io::stderr))
            .try_init(),
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a subscriber is installed already");
    }
}
