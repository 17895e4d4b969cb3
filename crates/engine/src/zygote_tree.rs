//! A tree of zygotes as it is written down: to look at, to keep, to start from.
//!
//! The format is Forklift's: nested `{"packages": ["name==version", …], "children": […]}`, each
//! node naming what it adds to its parent. `modules`, where given, says which modules a node
//! imports; without it, all outermost ones.

use serde::{Deserialize, Serialize};

use crate::distribution::Distribution;

/// One node, and all below it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ZygoteTree {
    /// What it adds to its parent, each as `name==version`.
    #[serde(default)]
    pub packages: Vec<String>,
    /// The modules that it imports beyond its parent; empty: all outermost modules of `packages`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<String>,
    /// Those derived from it.
    #[serde(default)]
    pub children: Vec<ZygoteTree>,
}

/// A node of the tree with all that it inherits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TreeNode {
    pub(crate) packages: Vec<String>,
    /// Modules by name; those of a node that names none are its packages'.
    pub(crate) modules: Vec<String>,
    /// The packages of which all outermost modules are imported.
    pub(crate) whole: Vec<String>,
    /// The node above it, by its place among all, unless that adds nothing.
    pub(crate) above: Option<usize>,
}

impl ZygoteTree {
    /// Zygotes in the tree, the root included.
    #[must_use]
    pub fn nodes(&self) -> usize {
        1 + self.children.iter().map(Self::nodes).sum::<usize>()
    }

    /// Its nodes, parents first, without those that add nothing.
    pub(crate) fn flatten(&self) -> Vec<TreeNode> {
        let mut all = Vec::new();
        self.plan(&TreeNode::default(), &mut all);
        all
    }

    fn plan(&self, above: &TreeNode, all: &mut Vec<TreeNode>) {
        let mut own = above.clone();
        let packages: Vec<String> = self.packages.iter().map(|package| normal(package)).collect();
        own.modules.extend(self.modules.iter().cloned());
        if self.modules.is_empty() {
            own.whole.extend(packages.iter().cloned());
        }
        own.packages.extend(packages);
        if own != *above {
            all.push(own.clone());
            own.above = Some(all.len() - 1);
        }
        self.children.iter().for_each(|child| child.plan(&own, all));
    }
}

impl TreeNode {
    /// The distributions and modules of this node out of `lock`, if that holds them all.
    pub(crate) fn among<'a>(
        &self,
        lock: &'a [Distribution],
    ) -> Option<(Vec<&'a Distribution>, Vec<String>)> {
        let find = |package: &String| {
            let (name, version) = package.split_once("==")?;
            lock.iter().find(|one| one.name == name && one.version == version)
        };
        let distributions: Vec<_> = self.packages.iter().map(find).collect::<Option<_>>()?;
        let whole = self.whole.iter().filter_map(find).flat_map(|one| one.modules.iter().cloned());
        let modules = self.modules.iter().cloned().chain(whole).collect();
        Some((distributions, modules))
    }
}

/// A package with its name as PEP 503 normalises names, which is how locks write them.
fn normal(package: &str) -> String {
    let (name, version) = package.split_once("==").unwrap_or((package, ""));
    let words = name.split(['-', '_', '.']).filter(|word| !word.is_empty());
    let name = words.map(str::to_lowercase).collect::<Vec<_>>().join("-");
    format!("{name}=={version}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn locked(names: &[&str]) -> Vec<Distribution> {
        let one = |name: &&str| Distribution {
            name: (*name).to_owned(),
            version: "1".to_owned(),
            wheel: format!("{name}-1-abc"),
            modules: vec![name.replace('-', "_")],
        };
        names.iter().map(one).collect()
    }

    #[test]
    fn forklifts_format_is_read_with_what_each_node_inherits() {
        let text = r#"{"packages": [], "direct": [], "split_generation": 0, "children": [
            {"packages": ["numpy==1"], "direct": ["numpy==1"], "test_count": 2, "children": [
                {"packages": ["pandas==1", "six==1"], "children": []}]}]}"#;
        let tree: ZygoteTree = serde_json::from_str(text).unwrap();
        assert_eq!(tree.nodes(), 3);
        let planned = tree.flatten();
        assert_eq!(planned.iter().map(|node| node.packages.len()).collect::<Vec<_>>(), [1, 3]);
        let lock = locked(&["numpy", "pandas", "requests", "six"]);
        let (distributions, modules) = planned[1].among(&lock).unwrap();
        assert_eq!(distributions.len(), 3);
        assert_eq!(modules, ["numpy", "pandas", "six"]);
        assert_eq!(planned[1].among(&locked(&["numpy", "pandas"])), None, "six is not locked");
    }

    #[test]
    fn another_version_is_not_what_was_planned() {
        let tree = ZygoteTree { packages: vec!["numpy==2".to_owned()], ..ZygoteTree::default() };
        assert_eq!(tree.flatten()[0].among(&locked(&["numpy"])), None);
    }
}
