//! What a pair is made of is deleted by hand, one after the other: it comes back, the pair is healthy, the rows are there.

use crate::blueprint::{self as bp, PAIR};
use crate::fleet::{Fleet, Object};
use crate::pair::TAKEN_OVER;
use crate::reach::Reach;
use crate::scenario::Group;
use crate::testbed;
use crate::wait::{self, REPAIR, SOON, Seen};
use crate::{scenario, shared};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    ConfigMap, PersistentVolumeClaim, Pod, ResourceQuota, ResourceQuotaSpec, Secret, Service,
};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, ObjectMeta};
use serde_json::json;
use shardwright::api::{MySQLPair, names};

/// The group.
pub fn group() -> Group {
    Group {
        name: "children",
        alone: false,
        fixture: shared!(bp::small),
        scenarios: vec![
            scenario!(
                Short,
                "child-services",
                services,
                "each Service and EndpointSlice, deleted or edited"
            ),
            scenario!(
                Short,
                "child-config",
                config,
                "my.cnf's ConfigMap, deleted or edited"
            ),
            scenario!(
                Short,
                "child-pdb-networkpolicy",
                policies,
                "PodDisruptionBudget and NetworkPolicy"
            ),
            scenario!(
                Short,
                "child-secrets",
                secrets,
                "each Secret: passwords stay the same, a new certificate is of the same authority"
            ),
            scenario!(
                Short,
                "child-statefulset-orphan",
                statefulset_orphan,
                "the StatefulSet without its Pods: no server is restarted"
            ),
            scenario!(
                Short,
                "child-pod-passive",
                pod_passive,
                "the passive Pod, gracefully"
            ),
            scenario!(
                Short,
                "child-pod-active",
                pod_active,
                "the active Pod, by force: the other server takes over, and stays active"
            ),
            scenario!(Short, "child-pods-both", pods_both, "both Pods at once"),
            scenario!(
                Short,
                "child-refused",
                refused,
                "a quota refuses a child: it is said, the servers are looked after all the same"
            ),
            scenario!(
                Full,
                "child-statefulset",
                statefulset,
                "the StatefulSet with its Pods"
            ),
            scenario!(
                Short,
                "child-pvc-passive",
                pvc_passive,
                "the passive server's volume with all its data: it is copied anew"
            ),
            scenario!(
                Short,
                "mysqld-killed",
                mysqld_killed,
                "each mysqld is killed by -9 under writes: crash recovery is left in peace",
                TestBed
            ),
            scenario!(
                Full,
                "credentials-lost",
                credentials_lost,
                "both copies of the passwords: new ones are made and taken over"
            ),
        ],
    }
}

/// The pair and all of the fleet are as they were, with every row, and take new ones.
async fn recovered(f: &Fleet) -> Result<()> {
    f.recovered(PAIR).await?;
    f.intact().await
}

/// Deletes an object and waits for another one of the name.
async fn replace<K: Object>(f: &Fleet, name: &str) -> Result<K> {
    let old: K = f.get(name).await?;
    f.delete::<K>(name).await?;
    f.again::<K>(name, old.meta().uid.as_deref(), SOON).await
}

/// UID and start of each Pod of the pair, to see that none was touched.
async fn pods(f: &Fleet) -> Result<Vec<(String, Option<String>, i32)>> {
    let mut all = vec![];
    for n in names::ORDINALS {
        let pod: Pod = f.get(&names::pod(PAIR, n)).await?;
        let restarts = pod
            .status
            .as_ref()
            .and_then(|s| s.container_statuses.as_ref())
            .map_or(0, |c| c.iter().map(|c| c.restart_count).sum());
        all.push((pod.name_any(), pod.uid(), restarts));
    }
    Ok(all)
}

async fn services(f: &Fleet) -> Result<()> {
    let before = pods(f).await?;
    for name in [
        names::headless_service(PAIR),
        names::active_service(PAIR),
        names::passive_service(PAIR),
    ] {
        replace::<Service>(f, &name).await?;
    }
    for name in [names::active_service(PAIR), names::passive_service(PAIR)] {
        replace::<EndpointSlice>(f, &name).await?;
        f.edit::<EndpointSlice>(&name, json!({"endpoints": [{"addresses": ["10.255.255.1"]}]}))
            .await?;
    }
    f.edit::<Service>(
        &names::active_service(PAIR),
        json!({"metadata": {"labels": {"shardwright.dev/pair": "other"}}}),
    )
    .await?;
    let active = f.active(PAIR).await?;
    leads_to(f, &names::active_service(PAIR), active).await?;
    leads_to(f, &names::passive_service(PAIR), 1 - active).await?;
    let label = |s: &Service| s.labels().get(names::PAIR_LABEL).cloned();
    wait::until("the label to be back", SOON, || async {
        let s: Service = f.get(&names::active_service(PAIR)).await?;
        Ok(Seen::when(label(&s).as_deref() == Some(PAIR), || {
            format!("{:?}", label(&s))
        }))
    })
    .await?;
    ensure!(pods(f).await? == before, "a Pod was touched");
    recovered(f).await
}

/// A connection to the Service's own address ends at that server.
async fn leads_to(f: &Fleet, service: &str, ordinal: usize) -> Result<()> {
    let pod: Pod = f.get(&names::pod(PAIR, ordinal)).await?;
    let ip = pod.status.and_then(|s| s.pod_ip).context("no address")?;
    wait::until(
        &format!("the EndpointSlice {service} to name {ip}"),
        SOON,
        || async {
            let slice: EndpointSlice = f.get(service).await?;
            let named: Vec<_> = slice.endpoints.iter().flat_map(|e| e.addresses.clone()).collect();
            Ok(Seen::when(named == [ip.clone()], || format!("{named:?}")))
        },
    )
    .await?;
    if f.world.settings.reach() == Reach::Forward {
        // From outside there is no way to a Service's address.
        return Ok(());
    }
    let uuid = f.server(PAIR, ordinal).await?.vitals().await?.uuid;
    wait::until(&format!("{service} to lead to {ordinal}"), SOON, || async {
        let s: Service = f.get(service).await?;
        let address = s.spec.and_then(|s| s.cluster_ip).context("no address")?;
        let secret = names::app_secret(&f.cluster);
        let (user, password, ca) = (
            f.secret(&secret, "username").await?,
            f.secret(&secret, "password").await?,
            f.secret(&secret, "ca.crt").await?,
        );
        let mut login = f.login(PAIR, ordinal, &user, &password, &ca).await?;
        login.address = address;
        login.tls_name = format!("{service}.{}.svc", f.ns);
        let found: String = login.connect().await?.one("SELECT @@GLOBAL.server_uuid").await?;
        Ok(Seen::when(found == uuid, || format!("leads to {found}")))
    })
    .await
}

async fn config(f: &Fleet) -> Result<()> {
    let before = pods(f).await?;
    let name = names::config_map(PAIR);
    let old: ConfigMap = f.get(&name).await?;
    let new = replace::<ConfigMap>(f, &name).await?;
    ensure!(old.data == new.data, "my.cnf changed");
    let key = old
        .data
        .iter()
        .flatten()
        .next()
        .map(|(k, _)| k.clone())
        .context("no my.cnf")?;
    f.edit::<ConfigMap>(&name, json!({"data": {key: "[mysqld]\nport = 1\n"}}))
        .await?;
    wait::until("my.cnf to be restored", SOON, || async {
        let now: ConfigMap = f.get(&name).await?;
        Ok(Seen::when(now.data == old.data, || format!("{:?}", now.data)))
    })
    .await?;
    ensure!(pods(f).await? == before, "a Pod was touched");
    recovered(f).await
}

async fn policies(f: &Fleet) -> Result<()> {
    let old: PodDisruptionBudget = f.get(PAIR).await?;
    let new = replace::<PodDisruptionBudget>(f, PAIR).await?;
    ensure!(old.spec == new.spec, "the budget changed: {:?}", new.spec);
    let policies = f
        .api::<NetworkPolicy>()
        .list(&kube::api::ListParams::default())
        .await?;
    ensure!(!policies.items.is_empty(), "there is no NetworkPolicy");
    for p in policies.items {
        let new = replace::<NetworkPolicy>(f, &p.name_any()).await?;
        ensure!(p.spec == new.spec, "the policy changed: {:?}", new.spec);
    }
    recovered(f).await
}

async fn secrets(f: &Fleet) -> Result<()> {
    let before = pods(f).await?;
    let (of_cluster, of_pair) = (
        names::credentials_secret(&f.cluster),
        names::pair_credentials_secret(PAIR),
    );
    // Whichever copy survives heals the other.
    for name in [
        of_cluster.as_str(),
        of_pair.as_str(),
        names::app_secret(&f.cluster).as_str(),
    ] {
        let old: Secret = f.get(name).await?;
        let new = replace_secret(f, name).await?;
        ensure!(old.data == new.data, "{name} has other data than before");
    }
    // Nothing of the key is kept: another certificate, of the same authority. Servers show it after their next start.
    let name = names::tls_secret(PAIR);
    let old: Secret = f.get(&name).await?;
    let new = replace_secret(f, &name).await?;
    let key = |s: &Secret, k: &str| s.data.as_ref().and_then(|d| d.get(k)).map(|b| b.0.clone());
    ensure!(key(&old, "ca.crt") == key(&new, "ca.crt"), "another authority");
    f.edit::<Secret>(
        &of_cluster,
        json!({"stringData": {"app-password": "spoiled-by-hand"}}),
    )
    .await?;
    wait::until("the spoiled password to be healed or to work", SOON, || async {
        f.app(PAIR, f.active(PAIR).await?).await?;
        Ok(Seen::Yes(()))
    })
    .await?;
    ensure!(pods(f).await? == before, "a Pod was touched");
    recovered(f).await
}

/// Secrets are noticed by the periodic pass, so this takes longer than for other children.
async fn replace_secret(f: &Fleet, name: &str) -> Result<Secret> {
    let old: Secret = f.get(name).await?;
    f.delete::<Secret>(name).await?;
    f.again::<Secret>(name, old.metadata.uid.as_deref(), REPAIR).await
}

async fn statefulset_orphan(f: &Fleet) -> Result<()> {
    let before = pods(f).await?;
    let old: StatefulSet = f.get(PAIR).await?;
    f.delete_orphaning::<StatefulSet>(PAIR).await?;
    f.again::<StatefulSet>(PAIR, old.metadata.uid.as_deref(), SOON)
        .await?;
    recovered(f).await?;
    ensure!(
        pods(f).await? == before,
        "a Pod was touched: {before:?} → {:?}",
        pods(f).await?
    );
    Ok(())
}

async fn statefulset(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    let old: StatefulSet = f.get(PAIR).await?;
    let mut pods = vec![];
    for n in names::ORDINALS {
        pods.push(f.server_pod(PAIR, n).await?.uid());
    }
    f.delete::<StatefulSet>(PAIR).await?;
    f.again::<StatefulSet>(PAIR, old.metadata.uid.as_deref(), SOON)
        .await?;
    // The Pods go one after the other, each once it has handed over what it had.
    for n in names::ORDINALS {
        f.again::<Pod>(&names::pod(PAIR, n), pods[n].as_deref(), REPAIR)
            .await?;
    }
    recovered(f).await?;
    let after = f.record(PAIR).await?;
    ensure!(
        after.epoch >= before.epoch,
        "the epoch fell: {before:?} → {after:?}"
    );
    Ok(())
}

async fn kill_pod(f: &Fleet, ordinal: usize, grace: Option<u32>) -> Result<Option<String>> {
    let name = names::pod(PAIR, ordinal);
    let old: Pod = f.get(&name).await?;
    let params = DeleteParams {
        grace_period_seconds: grace,
        ..DeleteParams::default()
    };
    f.api::<Pod>().delete(&name, &params).await?;
    Ok(old.uid())
}

async fn pod_passive(f: &Fleet) -> Result<()> {
    let active = f.active(PAIR).await?;
    let old = kill_pod(f, 1 - active, None).await?;
    // The active one goes on without it.
    f.write(&[1]).await?;
    f.again::<Pod>(&names::pod(PAIR, 1 - active), old.as_deref(), REPAIR)
        .await?;
    recovered(f).await?;
    ensure!(f.active(PAIR).await? == active, "another server is active");
    Ok(())
}

async fn pod_active(f: &Fleet) -> Result<()> {
    let active = f.active(PAIR).await?;
    let old = kill_pod(f, active, Some(0)).await?;
    f.served_by(PAIR, 1 - active, TAKEN_OVER).await?;
    f.write(&[4]).await?;
    f.again::<Pod>(&names::pod(PAIR, active), old.as_deref(), REPAIR)
        .await?;
    recovered(f).await?;
    ensure!(f.active(PAIR).await? == 1 - active, "the old one is active again");
    Ok(())
}

async fn pods_both(f: &Fleet) -> Result<()> {
    let before = f.record(PAIR).await?;
    let mut old = vec![];
    for n in names::ORDINALS {
        old.push(kill_pod(f, n, Some(0)).await?);
    }
    for n in names::ORDINALS {
        f.again::<Pod>(&names::pod(PAIR, n), old[n].as_deref(), REPAIR)
            .await?;
    }
    recovered(f).await?;
    // Whichever of the two came back first.
    let after = f.record(PAIR).await?;
    ensure!(
        after.epoch >= before.epoch,
        "the epoch fell: {before:?} → {after:?}"
    );
    Ok(())
}

async fn pvc_passive(f: &Fleet) -> Result<()> {
    let active = f.active(PAIR).await?;
    let passive = names::pod(PAIR, 1 - active);
    let uuid = f.server(PAIR, 1 - active).await?.vitals().await?.uuid;
    let pair: MySQLPair = f.get(PAIR).await?;
    let epoch = pair.status.map_or(0, |s| s.epoch);
    let claim = format!("data-{passive}");
    let old: PersistentVolumeClaim = f.get(&claim).await?;
    f.delete::<PersistentVolumeClaim>(&claim).await?;
    let pod = kill_pod(f, 1 - active, None).await?;
    f.again::<PersistentVolumeClaim>(&claim, old.metadata.uid.as_deref(), REPAIR)
        .await?;
    f.again::<Pod>(&passive, pod.as_deref(), REPAIR).await?;
    recovered(f).await?;
    ensure!(f.active(PAIR).await? == active, "another server is active");
    let now = f.server(PAIR, 1 - active).await?.vitals().await?.uuid;
    ensure!(now != uuid, "the passive server has its old data folder");
    let pair: MySQLPair = f.get(PAIR).await?;
    let status = pair.status.unwrap_or_default();
    ensure!(
        status.epoch > epoch,
        "inSync changed and the epoch did not: {} → {}",
        epoch,
        status.epoch
    );
    ensure!(
        status.in_sync.iter().any(|m| m.server_uuid == now),
        "not recorded: {:?}",
        status.in_sync
    );
    Ok(())
}

async fn mysqld_killed(f: &Fleet) -> Result<()> {
    let active = f.active(PAIR).await?;
    for n in [1 - active, active] {
        let before: Pod = f.get(&names::pod(PAIR, n)).await?;
        testbed::kill_container(&before, "mysqld").await?;
        wait::until("the container to be started again", REPAIR, || async {
            let now = pods(f).await?;
            Ok(Seen::when(now[n].1 == before.uid() && now[n].2 > 0, || {
                format!("{now:?}")
            }))
        })
        .await?;
        recovered(f).await?;
        // The passive one's death changes nothing, the active one's makes the other one active.
        ensure!(f.active(PAIR).await? == 1 - n, "the server that died is active");
    }
    Ok(())
}

async fn refused(f: &Fleet) -> Result<()> {
    let active = f.active(PAIR).await?;
    let quota = ResourceQuota {
        metadata: ObjectMeta {
            name: Some("no-services".into()),
            ..ObjectMeta::default()
        },
        spec: Some(ResourceQuotaSpec {
            hard: Some([("count/services".to_owned(), Quantity("0".into()))].into()),
            ..ResourceQuotaSpec::default()
        }),
        status: None,
    };
    f.apply(&quota).await?;
    wait::until("the quota to be counted", SOON, || async {
        let q: ResourceQuota = f.get("no-services").await?;
        Ok(Seen::when(q.status.is_some_and(|s| s.used.is_some()), || {
            "not yet".into()
        }))
    })
    .await?;
    let name = names::passive_service(PAIR);
    f.delete::<Service>(&name).await?;
    f.condition::<MySQLPair>(PAIR, "Stalled", "True", "ChildRefused", SOON)
        .await?;
    // An active server that dies meanwhile is taken over, and looked after when it is back.
    let old = kill_pod(f, active, Some(0)).await?;
    f.served_by(PAIR, 1 - active, TAKEN_OVER).await?;
    f.again::<Pod>(&names::pod(PAIR, active), old.as_deref(), REPAIR)
        .await?;
    f.healthy(PAIR).await?;
    f.write(&[2]).await?;
    f.delete::<ResourceQuota>("no-services").await?;
    f.again::<Service>(&name, None, REPAIR).await?;
    recovered(f).await
}

async fn credentials_lost(f: &Fleet) -> Result<()> {
    let name = names::credentials_secret(&f.cluster);
    let old = f.secret(&name, "operator-password").await?;
    for secret in [name.as_str(), names::pair_credentials_secret(PAIR).as_str()] {
        f.delete::<Secret>(secret).await?;
    }
    f.again::<Secret>(&name, None, REPAIR).await?;
    recovered(f).await?;
    ensure!(
        f.secret(&name, "operator-password").await? != old,
        "the lost password is known again"
    );
    Ok(())
}
