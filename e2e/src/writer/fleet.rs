//! Clients of a fleet, both ways.

use super::{Follower, Route, Work, Writer};
use crate::fleet::Fleet;
use crate::ledger::TABLE;
use crate::reach::Reach;
use crate::server::Login;
use crate::settings::Settings;
use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use shardwright::api::names;

impl Fleet {
    /// How an application logs in at a name, from inside the cluster's network.
    ///
    /// # Errors
    /// When there is no Secret for applications.
    pub async fn app_login(&self, host: &str) -> Result<Login> {
        let secret = names::app_secret(&self.cluster);
        Ok(Login {
            address: host.into(),
            port: names::MYSQL_PORT,
            tls_name: host.into(),
            user: self.secret(&secret, "username").await?,
            password: self.secret(&secret, "password").await?,
            ca: Some(self.secret(&secret, "ca.crt").await?),
        })
    }

    /// Table, with its database, that clients write to in a shard.
    ///
    /// # Errors
    /// When the cluster cannot be read.
    pub async fn table(&self, shard: i32) -> Result<String> {
        Ok(format!("`{}`.`{TABLE}`", self.database(shard).await?))
    }

    /// The way by the published map, which is followed at the operator's Service.
    ///
    /// # Errors
    /// When the operator's Service, or the Secret for applications, is not there; outside the cluster's network.
    pub async fn route_by_map(&self, shard: i32) -> Result<Route> {
        self.inside()?;
        let api: Api<Service> =
            Api::namespaced(self.world.client.clone(), &self.world.settings.operator_namespace);
        let address = format!("{}:8080", cluster_ip(&api.get(Settings::RELEASE).await?)?);
        let path = format!("/maps/{}/{}", self.ns, self.cluster);
        let login = self.app_login("").await?;
        Ok(Route::by_map(Follower::start(address, path, shard), login))
    }

    /// The way by the Service of a pair's active server: its address, so through the rules of a kube-proxy.
    ///
    /// # Errors
    /// When the Service, or the Secret for applications, is not there; outside the cluster's network.
    pub async fn route_by_service(&self, pair: &str) -> Result<Route> {
        self.inside()?;
        let name = names::active_service(pair);
        let service: Service = self.get(&name).await?;
        let login = self.app_login(&format!("{name}.{}.svc", self.ns)).await?;
        Ok(Route::fixed(Login {
            address: cluster_ip(&service)?,
            ..login
        }))
    }

    /// A client that writes to a shard.
    ///
    /// # Errors
    /// When the cluster cannot be read.
    pub async fn writer(&self, client: &str, shard: i32, route: Route) -> Result<Writer> {
        let work = Work {
            client: client.into(),
            table: self.table(shard).await?,
            pause: super::PAUSE,
            patience: None,
        };
        Ok(Writer::start(work, route))
    }

    /// A client that writes every 40 ms and waits for each answer as long as it takes, so that nothing is unknown but what no server answered.
    ///
    /// # Errors
    /// When the cluster cannot be read.
    pub async fn patient_writer(&self, client: &str, shard: i32, route: Route) -> Result<Writer> {
        let work = Work {
            client: client.into(),
            table: self.table(shard).await?,
            pause: std::time::Duration::from_millis(40),
            // As long as a statement may take here at all.
            patience: Some(std::time::Duration::from_secs(10)),
        };
        Ok(Writer::start(work, route))
    }

    fn inside(&self) -> Result<()> {
        ensure!(
            self.world.settings.reach() == Reach::Direct,
            "Services and names are reached from inside the cluster's network only"
        );
        Ok(())
    }
}

/// A Service's own address.
///
/// # Errors
/// When it has none.
pub fn cluster_ip(service: &Service) -> Result<String> {
    let ip = service.spec.as_ref().and_then(|s| s.cluster_ip.clone());
    let ip = ip.unwrap_or_default();
    ensure!(
        !ip.is_empty() && ip != "None",
        "the Service has no address of its own"
    );
    Ok(ip)
}
