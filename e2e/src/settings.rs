//! What a run is told from outside: which cluster, which images, which scenarios.

use crate::reach::Reach;
use clap::Args;
use std::path::PathBuf;

/// Options that every command takes. `make` gives them by environment.
#[derive(Args, Clone, Debug)]
pub struct Settings {
    /// The cluster is this project's own test bed, on this machine: nodes may be killed, the audit log can be read.
    #[arg(long, env = "SHARDWRIGHT_E2E_LOCAL", global = true, num_args = 0..=1, default_missing_value = "true",
          value_parser = clap::builder::BoolishValueParser::new(), default_value = "false")]
    pub local: bool,
    /// The test bed's script, needed with `--local`.
    #[arg(
        long,
        env = "SHARDWRIGHT_E2E_CLUSTER",
        global = true,
        default_value = "e2e/cluster/cluster"
    )]
    pub cluster_script: PathBuf,
    /// Image of MySQL.
    #[arg(
        long,
        env = "SHARDWRIGHT_E2E_MYSQL_IMAGE",
        global = true,
        default_value = "mysql:9.7"
    )]
    pub mysql_image: String,
    /// Another name of an image of MySQL, for scenarios that change the image.
    #[arg(
        long,
        env = "SHARDWRIGHT_E2E_MYSQL_IMAGE_B",
        global = true,
        default_value = "mysql:9.7-b"
    )]
    pub mysql_image_b: String,
    /// Image of the operator, `repository:tag`.
    #[arg(
        long,
        env = "SHARDWRIGHT_E2E_OPERATOR_IMAGE",
        global = true,
        default_value = "shardwright/shardwright:dev"
    )]
    pub operator_image: String,
    /// The same operator under another tag, for the scenario that upgrades it.
    #[arg(
        long,
        env = "SHARDWRIGHT_E2E_OPERATOR_IMAGE_B",
        global = true,
        default_value = "shardwright/shardwright:dev-b"
    )]
    pub operator_image_b: String,
    /// The chart.
    #[arg(
        long,
        env = "SHARDWRIGHT_E2E_CHART",
        global = true,
        default_value = "charts/shardwright"
    )]
    pub chart: PathBuf,
    /// The folder of the kustomizations.
    #[arg(long, env = "SHARDWRIGHT_E2E_CONFIG", global = true, default_value = "config")]
    pub config: PathBuf,
    /// Where this command runs: in the cluster's network, or not. Direct in the test bed, else forward.
    #[arg(long, env = "SHARDWRIGHT_E2E_REACH", global = true, value_enum)]
    pub reach: Option<Reach>,
    /// The tool itself; the one beside this program when absent.
    #[arg(long, env = "SHARDWRIGHT_E2E_TOOL", global = true)]
    pub tool: Option<PathBuf>,
    /// StorageClass of the servers' volumes; the cluster's default when absent.
    #[arg(long, env = "SHARDWRIGHT_E2E_STORAGE_CLASS", global = true)]
    pub storage_class: Option<String>,
    /// StorageClass whose volumes survive their claims.
    #[arg(
        long,
        env = "SHARDWRIGHT_E2E_RETAIN_CLASS",
        global = true,
        default_value = "local-retain"
    )]
    pub retain_class: String,
    /// Namespace that the operator is installed into.
    #[arg(
        long,
        env = "SHARDWRIGHT_E2E_NAMESPACE",
        global = true,
        default_value = "shardwright-system"
    )]
    pub operator_namespace: String,
    /// The operator is there already: leave its installation alone (scenarios that change it are skipped).
    #[arg(long, env = "SHARDWRIGHT_E2E_NO_INSTALL", global = true, num_args = 0..=1, default_missing_value = "true",
          value_parser = clap::builder::BoolishValueParser::new(), default_value = "false")]
    pub no_install: bool,
}

impl Settings {
    /// Name of the Helm release, of the Deployment and of the operator's Lease.
    pub const RELEASE: &'static str = "shardwright";

    /// How Pods are reached.
    pub fn reach(&self) -> Reach {
        let usual = if self.local { Reach::Direct } else { Reach::Forward };
        self.reach.unwrap_or(usual)
    }
}

/// Splits `repository:tag`; the colon of a registry's port is not taken for the tag's.
pub fn split_image(image: &str) -> (&str, &str) {
    match image.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (image, "latest"),
    }
}

#[cfg(test)]
mod tests {
    use super::split_image;

    #[test]
    fn a_port_is_no_tag() {
        assert_eq!(split_image("a/b:c"), ("a/b", "c"));
        assert_eq!(split_image("r:5000/b"), ("r:5000/b", "latest"));
        assert_eq!(split_image("r:5000/b:1"), ("r:5000/b", "1"));
    }
}
