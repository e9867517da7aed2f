//! `shardwright run`: every replica serves maps, metrics and probes; the one that leads reconciles.

use crate::{
    cli::RunArgs,
    controllers::{self, Context},
    http::{self, Readiness},
    leader::{self, Elector},
    maps,
    metrics::Metrics,
    shutdown::{self, Shutdown},
    telemetry,
};
use anyhow::{Context as _, bail};
use axum::http::{HeaderValue, header};
use futures::future;
use kube::{Api, Client};
use std::{process::ExitCode, sync::Arc, time::Duration};

/// How long running passes may take to end after the signal; Kubernetes gives 30 s in all.
const DRAIN: Duration = Duration::from_secs(15);

/// `shardwright run` from its arguments to its exit code.
pub fn main(args: RunArgs) -> ExitCode {
    telemetry::init(args.log_format);
    // Two threads are plenty for what mostly waits, and each further one costs memory.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(run(args)),
        Err(error) => Err(error.into()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs until the system asks to stop, or the lease is lost.
///
/// # Errors
/// When the API or the address to listen on cannot be used, or the lease was lost: the process then has to end, because another one may
/// lead already.
async fn run(args: RunArgs) -> anyhow::Result<()> {
    let mut config = kube::Config::infer()
        .await
        .context("no way to a Kubernetes API: neither in-cluster nor kubeconfig")?;
    let agent = concat!("shardwright/", env!("CARGO_PKG_VERSION"));
    config
        .headers
        .push((header::USER_AGENT, HeaderValue::from_static(agent)));
    let client = Client::try_from(config).context("make a client of the Kubernetes API")?;

    let metrics = Arc::new(Metrics::default());
    let maps = Arc::new(maps::Maps::new(args.namespaces().len().max(1)));
    let readiness = Readiness::new(maps::watches(args.namespaces().len()));
    let shutdown = Shutdown::default();

    let server = http::serve(
        args.listen,
        readiness.clone(),
        Arc::clone(&metrics),
        Arc::clone(&maps),
    );
    let synced = {
        let readiness = readiness.clone();
        move || readiness.open()
    };
    let touch = maps::keep_in_touch(client.clone(), Arc::clone(&maps));
    let follow = maps::follow(client.clone(), args.namespaces(), maps, synced);
    let lead = lead(client, &args, metrics, &shutdown);

    tokio::select! {
        outcome = server => outcome.with_context(|| format!("serve HTTP on {}", args.listen)),
        () = follow => bail!("the watch of the shard maps ended"),
        () = touch => bail!("nobody asks any more whether the API server is there"),
        outcome = lead => outcome,
    }
}

/// Waits for the lease, reconciles while it is held, and hands it back.
async fn lead(
    client: Client,
    args: &RunArgs,
    metrics: Arc<Metrics>,
    shutdown: &Shutdown,
) -> anyhow::Result<()> {
    let identity = args.identity.clone().unwrap_or_else(own_name);
    let asked = shutdown::asked_by_system();
    tokio::pin!(asked);
    let leases = Api::namespaced(client.clone(), &args.lease_namespace);
    let mut elector = args.leader_elect.then(|| {
        Elector::new(
            leases,
            leader::Config::new(args.lease_name.clone(), identity.clone()),
        )
    });
    if let Some(elector) = &mut elector {
        tokio::select! {
            () = elector.acquire() => tracing::info!(identity, "leading"),
            asked = &mut asked => return asked.context("listen for signals"),
        }
    }
    metrics.leader.set(1);

    let ctx = Arc::new(Context::new(
        client,
        Some(identity),
        Arc::clone(&metrics),
        args.namespaces(),
    ));
    let controllers = controllers::all(ctx, shutdown.signal());
    tokio::pin!(controllers);
    let lost = async {
        match &mut elector {
            Some(elector) => elector.hold().await,
            None => future::pending().await,
        }
    };
    let mut lost = Box::pin(lost);
    let lost_error = || anyhow::anyhow!("the lease {}/{} was lost", args.lease_namespace, args.lease_name);
    tokio::select! {
        asked = &mut asked => asked.context("listen for signals")?,
        // Dropping the controllers here aborts whatever they were doing.
        () = &mut lost => return Err(lost_error()),
        () = &mut controllers => bail!("the controllers ended"),
    }
    tracing::info!("stopping");
    shutdown.stop();
    // The lease is held while the last passes end, so that nobody else begins beside them.
    tokio::select! {
        () = &mut controllers => {}
        () = &mut lost => return Err(lost_error()),
        () = tokio::time::sleep(DRAIN) => tracing::warn!("passes were cut off after {DRAIN:?}"),
    }
    drop(lost);
    metrics.leader.set(0);
    if let Some(elector) = &elector {
        crate::deadline::within(crate::deadline::API, elector.release())
            .await?
            .context("hand the lease back")?;
    }
    Ok(())
}

/// A name for a process that was given none: no two are alike.
fn own_name() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}-{}", host.trim(), std::process::id())
}
