//! The StatefulSet of a pair: two servers on two nodes, replaced by nobody but the operator.

use super::accounts_sql;
use super::client_cnf;
use super::config_map;
use super::labels;
use super::pair::PairContext;
use super::secrets::{TLS_CRT, TLS_KEY};
use super::services::PORT_NAME;
use crate::api::mysql_template::Scheduling;
use crate::api::names::{self, CLUSTER_LABEL, PAIR_LABEL, SPEC_HASH_ANNOTATION};
use crate::core::credentials::CA_CRT;
use k8s_openapi::api::apps::v1::{
    StatefulSet, StatefulSetPersistentVolumeClaimRetentionPolicy, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMapProjection, Container, ContainerPort, EmptyDirVolumeSource, EnvVar,
    EnvVarSource, ExecAction, KeyToPath, Lifecycle, LifecycleHandler, LocalObjectReference,
    ObjectFieldSelector, PersistentVolumeClaim, PersistentVolumeClaimSpec, PodAffinityTerm, PodAntiAffinity,
    PodReadinessGate, PodSecurityContext, PodSpec, PodTemplateSpec, Probe, ProjectedVolumeSource,
    SeccompProfile, SecretProjection, SecurityContext, TCPSocketAction, Volume, VolumeMount,
    VolumeProjection, VolumeResourceRequirements, WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;

/// Where configuration, accounts and certificates are mounted, read-only.
pub const CONFIG_DIR: &str = "/etc/shardwright";
/// Where the volume is mounted. The data folder is a folder in it: a file system of its own has things like `lost+found` at
/// its root, and a folder can be put in place whole.
pub const VOLUME_DIR: &str = "/var/lib/mysql";
/// Name of the claims' template; the claims are called `data-<pod>`.
pub const CLAIM: &str = "data";
/// Name of the container that mysqld runs in.
pub const MYSQLD_CONTAINER: &str = "mysqld";
/// Name of the container that makes a data folder on an empty volume.
pub const INIT_CONTAINER: &str = "init";

/// Makes the data folder on an empty volume, by the image's own mysqld. It appears under its name when it is complete and on
/// disk; a start that was interrupted begins anew. Without a binary log, so that it has no transactions of its own.
const INIT_SCRIPT: &str = include_str!("init.sh");

/// Starts mysqld, and ends it when that is asked for: clients first.
const MYSQLD_SCRIPT: &str = include_str!("mysqld.sh");

/// Lets the signal to end come only when another one takes the writes.
const PRE_STOP_SCRIPT: &str = include_str!("pre_stop.sh");

/// User and group of mysql in the stock image.
const MYSQL_ID: i64 = 999;

/// `<pair>`.
pub fn stateful_set(ctx: &PairContext) -> StatefulSet {
    StatefulSet {
        metadata: ctx.owned(ctx.pair.clone()),
        spec: Some(StatefulSetSpec {
            replicas: Some(2),
            service_name: Some(names::headless_service(&ctx.pair)),
            selector: labels::pair_label_selector(&ctx.pair),
            // Both at once: neither waits for the other one to be ready.
            pod_management_policy: Some("Parallel".to_owned()),
            // A change of the template replaces nothing: the operator deletes the Pods, the passive server's first.
            update_strategy: Some(StatefulSetUpdateStrategy {
                type_: Some("OnDelete".to_owned()),
                ..StatefulSetUpdateStrategy::default()
            }),
            persistent_volume_claim_retention_policy: Some(StatefulSetPersistentVolumeClaimRetentionPolicy {
                when_deleted: Some("Retain".to_owned()),
                when_scaled: Some("Retain".to_owned()),
            }),
            revision_history_limit: Some(2),
            template: PodTemplateSpec {
                metadata: Some(pod_metadata(ctx)),
                spec: Some(pod_spec(ctx)),
            },
            volume_claim_templates: Some(vec![claim(ctx)]),
            ..StatefulSetSpec::default()
        }),
        ..StatefulSet::default()
    }
}

fn pod_metadata(ctx: &PairContext) -> ObjectMeta {
    // Ours last: they win over the user's, which CEL refuses anyway.
    let mut labels = ctx.template.pod_labels.clone();
    labels.extend(ctx.labels());
    let mut annotations = ctx.template.pod_annotations.clone();
    annotations.insert(
        "kubectl.kubernetes.io/default-container".to_owned(),
        MYSQLD_CONTAINER.to_owned(),
    );
    annotations.insert(SPEC_HASH_ANNOTATION.to_owned(), ctx.spec_hash());
    ObjectMeta {
        labels: Some(labels),
        annotations: Some(annotations),
        ..ObjectMeta::default()
    }
}

fn pod_spec(ctx: &PairContext) -> PodSpec {
    let Scheduling {
        node_selector,
        tolerations,
        priority_class_name,
    } = ctx.template.scheduling.clone().unwrap_or_default();
    let pull_secrets = ctx
        .template
        .image_pull_secrets
        .iter()
        .map(|r| LocalObjectReference { name: r.name.clone() });
    PodSpec {
        affinity: Some(affinity(ctx)),
        automount_service_account_token: Some(false),
        containers: vec![mysqld(ctx)],
        enable_service_links: Some(false),
        image_pull_secrets: non_empty(pull_secrets.collect()),
        init_containers: Some(vec![init(ctx)]),
        node_selector: (!node_selector.is_empty()).then_some(node_selector),
        priority_class_name,
        // Set by the operator: True for the active server and for one that may become it. So a drain waits with the active one while
        // there is no other that could take over.
        readiness_gates: Some(vec![PodReadinessGate {
            condition_type: names::IN_SYNC_GATE.to_owned(),
        }]),
        security_context: Some(PodSecurityContext {
            fs_group: Some(MYSQL_ID),
            fs_group_change_policy: Some("OnRootMismatch".to_owned()),
            run_as_group: Some(MYSQL_ID),
            run_as_non_root: Some(true),
            run_as_user: Some(MYSQL_ID),
            seccomp_profile: Some(SeccompProfile {
                type_: "RuntimeDefault".to_owned(),
                ..SeccompProfile::default()
            }),
            ..PodSecurityContext::default()
        }),
        // For handing over, 25 s at most, and for a clean shutdown, which writes back what is only in memory.
        termination_grace_period_seconds: Some(120),
        tolerations: non_empty(tolerations),
        volumes: Some(vec![config_volume(ctx), scratch("run"), scratch("tmp")]),
        ..PodSpec::default()
    }
}

fn non_empty<T>(v: Vec<T>) -> Option<Vec<T>> {
    (!v.is_empty()).then_some(v)
}

/// Two servers on one node would die together, so that is never done; two zones are taken where there are two.
fn affinity(ctx: &PairContext) -> Affinity {
    let apart = |topology_key: &str| PodAffinityTerm {
        label_selector: Some(labels::pair_label_selector(&ctx.pair)),
        topology_key: topology_key.to_owned(),
        ..PodAffinityTerm::default()
    };
    Affinity {
        pod_anti_affinity: Some(PodAntiAffinity {
            required_during_scheduling_ignored_during_execution: Some(vec![apart("kubernetes.io/hostname")]),
            preferred_during_scheduling_ignored_during_execution: Some(vec![WeightedPodAffinityTerm {
                weight: 100,
                pod_affinity_term: apart("topology.kubernetes.io/zone"),
            }]),
        }),
        ..Affinity::default()
    }
}

fn base(ctx: &PairContext, name: &str) -> Container {
    let mount = |volume: &str, path: &str, read_only: Option<bool>| VolumeMount {
        name: volume.to_owned(),
        mount_path: path.to_owned(),
        read_only,
        ..VolumeMount::default()
    };
    Container {
        name: name.to_owned(),
        image: Some(ctx.template.image.clone()),
        image_pull_policy: ctx.template.image_pull_policy.map(|p| p.as_str().to_owned()),
        resources: ctx.template.resources.clone(),
        env: Some(vec![EnvVar {
            name: "POD_NAME".to_owned(),
            value_from: Some(EnvVarSource {
                field_ref: Some(ObjectFieldSelector {
                    field_path: "metadata.name".to_owned(),
                    ..ObjectFieldSelector::default()
                }),
                ..EnvVarSource::default()
            }),
            ..EnvVar::default()
        }]),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            ..SecurityContext::default()
        }),
        // Why one ended is told in the pair's condition: mysqld says it on its standard error only.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(vec![
            mount(CLAIM, VOLUME_DIR, None),
            mount("config", CONFIG_DIR, Some(true)),
            mount("run", "/run/mysqld", None),
            mount("tmp", "/tmp", None),
        ]),
        ..Container::default()
    }
}

fn init(ctx: &PairContext) -> Container {
    Container {
        command: Some(vec!["sh".to_owned(), "-c".to_owned(), INIT_SCRIPT.to_owned()]),
        ..base(ctx, INIT_CONTAINER)
    }
}

fn mysqld(ctx: &PairContext) -> Container {
    let mut c = base(ctx, MYSQLD_CONTAINER);
    // The last word is the script's own name, in what it says.
    c.command = Some(["sh", "-c", MYSQLD_SCRIPT, "sh"].map(str::to_owned).into());
    c.args = Some(vec![
        "mysqld".to_owned(),
        format!("--defaults-file={CONFIG_DIR}/$(POD_NAME).cnf"),
    ]);
    c.ports = Some(vec![ContainerPort {
        name: Some(PORT_NAME.to_owned()),
        container_port: names::MYSQL_PORT.into(),
        protocol: Some("TCP".to_owned()),
        ..ContainerPort::default()
    }]);
    // The port opens when crash recovery is done, however long that takes: killing a server in it only makes it longer.
    c.startup_probe = Some(probe(2, i32::MAX));
    c.readiness_probe = Some(probe(2, 2));
    // Five minutes without accepting a connection at all. The operator sees earlier and decides better; this is for a process
    // that hangs while there is no operator.
    c.liveness_probe = Some(probe(10, 30));
    c.lifecycle = Some(Lifecycle {
        pre_stop: Some(LifecycleHandler {
            exec: Some(ExecAction {
                command: Some(vec!["sh".to_owned(), "-c".to_owned(), PRE_STOP_SCRIPT.to_owned()]),
            }),
            ..LifecycleHandler::default()
        }),
        ..Lifecycle::default()
    });
    c
}

fn probe(period_seconds: i32, failure_threshold: i32) -> Probe {
    Probe {
        tcp_socket: Some(TCPSocketAction {
            port: IntOrString::String(PORT_NAME.to_owned()),
            ..TCPSocketAction::default()
        }),
        period_seconds: Some(period_seconds),
        timeout_seconds: Some(5),
        failure_threshold: Some(failure_threshold),
        ..Probe::default()
    }
}

/// my.cnf, certificates and accounts as one volume. Of the Secret with the credentials only two files are in it: for the boot, and for the
/// Pod's own client.
fn config_volume(ctx: &PairContext) -> Volume {
    let as_is = |key: &str| KeyToPath {
        key: key.to_owned(),
        path: key.to_owned(),
        ..KeyToPath::default()
    };
    let under_tls = |key: &str| KeyToPath {
        key: key.to_owned(),
        path: format!("tls/{key}"),
        ..KeyToPath::default()
    };
    let files = names::ORDINALS.map(|o| as_is(&config_map::key(&ctx.pair, o)));
    Volume {
        name: "config".to_owned(),
        projected: Some(ProjectedVolumeSource {
            // Read by the group, which is mysqld's (fsGroup), and by nobody else.
            default_mode: Some(0o440),
            sources: Some(vec![
                VolumeProjection {
                    config_map: Some(ConfigMapProjection {
                        name: names::config_map(&ctx.pair),
                        items: Some(files.into()),
                        optional: None,
                    }),
                    ..VolumeProjection::default()
                },
                VolumeProjection {
                    secret: Some(SecretProjection {
                        name: names::tls_secret(&ctx.pair),
                        items: Some([CA_CRT, TLS_CRT, TLS_KEY].map(under_tls).into()),
                        optional: None,
                    }),
                    ..VolumeProjection::default()
                },
                VolumeProjection {
                    secret: Some(SecretProjection {
                        name: names::pair_credentials_secret(&ctx.pair),
                        items: Some(vec![as_is(accounts_sql::FILE)]),
                        optional: None,
                    }),
                    ..VolumeProjection::default()
                },
                // Optional: a Pod starts without it where an earlier operator wrote the Secret anew, and is not waited for when it ends.
                VolumeProjection {
                    secret: Some(SecretProjection {
                        name: names::pair_credentials_secret(&ctx.pair),
                        items: Some(vec![as_is(client_cnf::FILE)]),
                        optional: Some(true),
                    }),
                    ..VolumeProjection::default()
                },
            ]),
        }),
        ..Volume::default()
    }
}

fn scratch(name: &str) -> Volume {
    Volume {
        name: name.to_owned(),
        empty_dir: Some(EmptyDirVolumeSource::default()),
        ..Volume::default()
    }
}

/// Template of the claims. Claims are not owned and not deleted with anything. The API lets nothing of it ever change, so it
/// holds no more than it must: a newer operator has to be able to write the same.
fn claim(ctx: &PairContext) -> PersistentVolumeClaim {
    let storage = &ctx.template.storage;
    PersistentVolumeClaim {
        metadata: ObjectMeta {
            name: Some(CLAIM.to_owned()),
            labels: Some(BTreeMap::from([
                (CLUSTER_LABEL.to_owned(), ctx.cluster.clone()),
                (PAIR_LABEL.to_owned(), ctx.pair.clone()),
            ])),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeClaimSpec {
            access_modes: Some(vec!["ReadWriteOnce".to_owned()]),
            resources: Some(VolumeResourceRequirements {
                requests: Some(BTreeMap::from([("storage".to_owned(), storage.size.clone())])),
                ..VolumeResourceRequirements::default()
            }),
            storage_class_name: storage.class_name.clone(),
            ..PersistentVolumeClaimSpec::default()
        }),
        ..PersistentVolumeClaim::default()
    }
}
