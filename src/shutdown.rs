//! One signal to stop for every task of the process.

use futures::future::{FutureExt, Shared};
use std::pin::Pin;
use tokio::sync::watch;

/// Ends when the process is to stop. Any number of tasks may await a clone of it.
pub type Signal = Shared<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>;

/// The one who gives the signal.
pub struct Shutdown {
    sender: watch::Sender<bool>,
}

impl Default for Shutdown {
    fn default() -> Self {
        Self {
            sender: watch::Sender::new(false),
        }
    }
}

impl Shutdown {
    /// A future that ends once the signal was given, also when it was given before.
    pub fn signal(&self) -> Signal {
        let mut receiver = self.sender.subscribe();
        let wait: Pin<Box<dyn Future<Output = ()> + Send + Sync>> = Box::pin(async move {
            // An error means that the sender is gone: then there is nothing left to wait for either.
            let _gone = receiver.wait_for(|stop| *stop).await.is_err();
        });
        wait.shared()
    }

    /// Gives the signal.
    pub fn stop(&self) {
        self.sender.send_replace(true);
    }
}

/// Ends when the operating system asks this process to stop (SIGTERM, SIGINT).
///
/// # Errors
/// When the handlers cannot be installed.
pub async fn asked_by_system() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::select! {
        _ = term.recv() => {}
        _ = int.recv() => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_signal_reaches_early_and_late_listeners() {
        let shutdown = Shutdown::default();
        let early = shutdown.signal();
        assert!(early.clone().now_or_never().is_none());
        shutdown.stop();
        early.await;
        shutdown.signal().await;
    }
}
