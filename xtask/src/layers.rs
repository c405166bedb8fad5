//! `cargo xtask layers`: a folder uses only the folders that [`LAYERS`] allows it, all of them above it in
//! the table.

use crate::toolchain::output;
use crate::{none, workspace};
use anyhow::{Context, Result};
use cargo_metadata::{DependencyKind, Metadata};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A folder of the repository.
#[derive(Clone, Copy, Debug)]
pub struct Layer {
    /// Its path from the root.
    pub folder: &'static str,
    /// Folders that it may use.
    pub uses: &'static [&'static str],
    /// Folders that only its tests may use.
    pub tests: &'static [&'static str],
}

const fn layer(folder: &'static str, uses: &'static [&'static str]) -> Layer {
    Layer { folder, uses, tests: &[] }
}

impl Layer {
    const fn tests(self, tests: &'static [&'static str]) -> Layer {
        Layer { tests, ..self }
    }
}

/// The table, from the bottom of the workspace to its top. Build dependencies may only point upwards in it;
/// tests may use what they compare with.
pub const LAYERS: &[Layer] = &[
    layer("core", &[]),
    layer("schedule", &["core"]),
    layer("cpu-ref", &["core"]),
    layer("kernels", &["core"]).tests(&["cpu-ref", "conformance"]),
    layer("gpu", &["core"]).tests(&["cpu-ref", "gpu/testing", "conformance"]),
    // Development only: a driver that computes with the reference.
    layer("gpu/testing", &["core", "cpu-ref", "kernels", "gpu"]),
    layer("cuda", &["core", "kernels", "gpu"]).tests(&["gpu/testing"]),
    layer("rocm", &["core", "kernels", "gpu"]).tests(&["gpu/testing"]),
    layer("embedded", &["core", "cpu-ref"]),
    layer("embedded/bare", &["core", "cpu-ref", "embedded"]),
    layer("ops", &["core", "schedule", "cpu-ref", "kernels", "gpu", "cuda", "rocm"]),
    layer("lockstep", &["core", "schedule", "cpu-ref", "kernels", "gpu", "cuda", "rocm", "ops"]),
    layer("conformance/recipes", &["lockstep"]),
    layer(
        "conformance",
        &["core", "cpu-ref", "kernels", "gpu", "cuda", "rocm", "embedded", "lockstep", "conformance/recipes"],
    )
    .tests(&["emulator/abi"]),
    layer("catalogue", &["lockstep"]),
    layer("golden", &["core", "lockstep"]),
    layer("trainer", &["embedded", "lockstep", "catalogue", "golden", "conformance"]),
    layer("capi", &["core", "lockstep"]),
    layer("interop", &["lockstep"]),
    layer("python", &["core", "lockstep", "capi"]),
    layer(
        "benches",
        &["core", "cpu-ref", "kernels", "gpu", "cuda", "rocm", "lockstep", "catalogue", "conformance"],
    )
    .tests(&["gpu/testing"]),
    layer("web", &["cpu-ref", "embedded", "lockstep", "catalogue", "conformance/recipes"]),
    // Development only: the shipped GPU code run on a CPU, and driver libraries made from it.
    layer("emulator", &[]).tests(&["core", "kernels"]),
    layer("emulator/abi", &["emulator"]),
    layer("emulator/libcuda", &["emulator", "emulator/abi"]).tests(&["core", "gpu", "cuda", "conformance"]),
    layer("emulator/libamdhip64", &["emulator", "emulator/abi"]).tests(&[
        "core",
        "gpu",
        "rocm",
        "conformance",
    ]),
    layer("xtask", &["core", "kernels", "emulator"]),
    layer("fuzz", &["core", "cpu-ref", "lockstep", "golden", "conformance", "trainer"]),
];

/// Registry packages that core and schedule may use; serde is without std, and only where recipes are read.
const CORE_MAY_USE: [&str; 4] = ["libm", "half", "bytemuck", "serde"];

/// A dependency: the dependent folder, what it depends on, and whether only tests need it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Edge {
    /// The dependent folder.
    pub from: String,
    /// A folder, or the name of a registry package.
    pub to: String,
    /// Whether `to` is a folder.
    pub is_folder: bool,
    /// Whether only tests need it.
    pub of_tests: bool,
}

/// Runs the command, for the workspace and for the packages outside it.
pub fn run(root: &Path) -> Result<()> {
    let mut edges = Vec::new();
    let (mut folders, mut unrun) = (Vec::new(), Vec::new());
    for apart in ["", "fuzz", "embedded/bare"] {
        if root.join(apart).join("Cargo.toml").is_file() {
            let metadata = workspace(&root.join(apart))?;
            edges.extend(edges_of(root, &metadata, &mut folders)?);
            unrun.extend(unrun_tests(&metadata)?);
        }
    }
    none("unit tests that never run, because `test = false` is set for their target", &unrun)?;
    none("the layers of the workspace are broken", &check(LAYERS, &folders, &edges))?;
    println!("layers: {} folders, {} dependencies between them, all upwards in the table", folders.len(), {
        edges.iter().filter(|edge| edge.is_folder).count()
    });
    Ok(())
}

/// The dependencies of a workspace, and the folders of its packages.
fn edges_of(root: &Path, metadata: &Metadata, folders: &mut Vec<String>) -> Result<Vec<Edge>> {
    let folder = |path: &Path| -> Result<String> {
        let path = path.canonicalize()?;
        let below = path.strip_prefix(root).with_context(|| format!("{} is outside", path.display()))?;
        Ok(below.to_string_lossy().into_owned())
    };
    let mut edges = Vec::new();
    for package in metadata.workspace_packages() {
        let from =
            folder(package.manifest_path.parent().context("a manifest without a folder")?.as_std_path())?;
        for dependency in &package.dependencies {
            edges.push(Edge {
                from: from.clone(),
                to: match &dependency.path {
                    Some(path) => folder(path.as_std_path())?,
                    None => dependency.name.clone(),
                },
                is_folder: dependency.path.is_some(),
                of_tests: dependency.kind == DependencyKind::Development,
            });
        }
        folders.push(from);
    }
    Ok(edges)
}

/// Files with unit tests below the root of a target without them.
fn unrun_tests(metadata: &Metadata) -> Result<Vec<String>> {
    let mut unrun = Vec::new();
    let targets = metadata.workspace_packages().into_iter().flat_map(|package| &package.targets);
    for target in targets.filter(|target| target.is_lib() && !target.test) {
        let source = target.src_path.parent().context("a file without a folder")?;
        let listed = output(Command::new("git").current_dir(source).args(["ls-files", "-z", "--", "*.rs"]))?;
        for path in listed.split_terminator('\0').map(|file| source.join(file)) {
            if fs::read_to_string(&path)?.contains("\n#[cfg(test)]") {
                unrun.push(path.into_string());
            }
        }
    }
    Ok(unrun)
}

/// Describes every violation of the table.
pub fn check(layers: &[Layer], folders: &[String], edges: &[Edge]) -> Vec<String> {
    let table: BTreeMap<&str, &Layer> = layers.iter().map(|layer| (layer.folder, layer)).collect();
    let mut wrong = Vec::new();
    for (at, layer) in layers.iter().enumerate() {
        for used in layer.uses {
            if !layers[..at].iter().any(|above| above.folder == *used) {
                wrong.push(format!("the table: {} uses {used}, which is not above it", layer.folder));
            }
        }
    }
    for folder in folders.iter().filter(|folder| !table.contains_key(&folder[..])) {
        wrong.push(format!("{folder} is not in the table (xtask/src/layers.rs)"));
    }
    for edge in edges {
        let Some(layer) = table.get(&edge.from[..]) else { continue };
        let (from, to) = (&edge.from, &edge.to);
        let allowed = match edge.is_folder {
            // The package itself, with other features.
            true if from == to => edge.of_tests,
            true => layer.uses.contains(&&to[..]) || edge.of_tests && layer.tests.contains(&&to[..]),
            false => {
                !["core", "schedule"].contains(&&from[..]) || edge.of_tests || CORE_MAY_USE.contains(&&to[..])
            }
        };
        if !allowed {
            let may = if edge.is_folder { layer.uses.join(", ") } else { CORE_MAY_USE.join(", ") };
            wrong.push(format!(
                "{from} uses {to}, and may use: {}",
                if may.is_empty() { "nothing" } else { &may }
            ));
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edge(from: &str, to: &str, is_folder: bool, of_tests: bool) -> Edge {
        Edge { from: from.into(), to: to.into(), is_folder, of_tests }
    }

    fn wrong(edge: Edge) -> usize {
        let folders = [edge.from.clone()];
        check(LAYERS, &folders, &[edge]).len()
    }

    #[test]
    fn the_table_points_upwards() {
        assert_eq!(check(LAYERS, &[], &[]), Vec::<String>::new());
        let downwards = [layer("core", &["lockstep"]), layer("lockstep", &["core"])];
        assert_eq!(check(&downwards, &[], &[]).len(), 1);
    }

    #[test]
    fn catches_each_kind_of_dependency() {
        assert_eq!(wrong(edge("lockstep", "core", true, false)), 0);
        assert_eq!(wrong(edge("core", "cpu-ref", true, false)), 1, "downwards");
        assert_eq!(wrong(edge("core", "cpu-ref", true, true)), 1, "downwards, in tests");
        assert_eq!(wrong(edge("cuda", "rocm", true, false)), 1, "sideways");
        assert_eq!(wrong(edge("trainer", "core", true, false)), 1, "over the head of lockstep");
        assert_eq!(wrong(edge("kernels", "conformance", true, true)), 0, "tests compare");
        assert_eq!(wrong(edge("kernels", "conformance", true, false)), 1, "builds do not");
        assert_eq!(wrong(edge("core", "rayon", false, false)), 1, "core stands on its own");
        assert_eq!(wrong(edge("schedule", "rayon", false, false)), 1, "so does schedule");
        assert_eq!(wrong(edge("core", "proptest", false, true)), 0, "its tests need not");
        assert_eq!(wrong(edge("core", "libm", false, false)), 0);
        assert_eq!(check(LAYERS, &["helpers".to_owned()], &[]).len(), 1, "a folder that nobody placed");
    }

    #[test]
    fn this_workspace_keeps_them() -> Result<()> {
        run(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize()?)
    }
}
