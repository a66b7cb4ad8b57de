//! Call tree: callers, callees and the time spent in each.

use crate::names::{NameId, SiteNames};
use crate::walk::{CompletedCall, EventPosition, ThreadInfo, TraceVisitor};
use serde::Serialize;
use std::collections::HashMap;
use std::io;

/// Maximum number of levels of a call tree. The self time of deeper calls is added to the call
/// around them.
pub const TREE_LEVELS_MAX: usize = 1024;

/// Grouping of calls into trees: by process or by thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TreeGrouping {
    /// One tree per process, summed over its threads.
    #[default]
    Processes,
    /// One tree per thread.
    Threads,
}

/// Line of a call tree. A root stands for a process or thread, the other lines for functions below
/// their callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct TreeLine {
    /// Depth in the tree: 0 for roots.
    pub level: usize,
    /// Name of the function, or of the root's process or thread.
    pub name: String,
    /// Number of calls from this caller. For a root, the number of outermost calls.
    pub calls: u64,
    /// Time in the function and its callees.
    pub total_ns: u64,
    /// Time in the function without its callees.
    pub self_ns: u64,
}

/// Index that stands for no node.
const NO_NODE: u32 = u32::MAX;

/// Node of a call tree. It is a root, or a function called from its parent; links are indices of
/// nodes.
#[derive(Debug)]
struct Node {
    /// Name of the function; `None` for a root.
    name: Option<NameId>,
    /// Index of the caller's node; [`NO_NODE`] for a root.
    parent: u32,
    /// Index of the first child, or [`NO_NODE`].
    first_child: u32,
    /// Index of the next child of the same parent, or [`NO_NODE`].
    next_sibling: u32,
    /// Index of the child that was looked up last.
    last_child: u32,
    calls: u64,
    /// Time in the function and its callees.
    total_ns: u64,
    /// Time in the function without its callees.
    self_ns: u64,
}

/// Visitor that builds the call trees of a [`walk`](crate::walk).
#[derive(Debug)]
pub struct CallTree {
    grouping: TreeGrouping,
    nodes: Vec<Node>,
    /// Index of each child, by its parent and its name.
    children: HashMap<(u32, NameId), u32>,
    /// Index and title of each root.
    roots: Vec<(u32, String)>,
    /// Index of the process of the latest root.
    process: Option<usize>,
    /// Index of the innermost open call's node.
    current: u32,
    /// Level of the node `current`; 0 for a root.
    level: usize,
    /// Number of open calls beyond [`TREE_LEVELS_MAX`].
    too_deep_count: u64,
}

impl CallTree {
    /// Creates an empty tree.
    #[must_use]
    pub fn new(grouping: TreeGrouping) -> Self {
        Self {
            grouping,
            nodes: Vec::new(),
            children: HashMap::new(),
            roots: Vec::new(),
            process: None,
            current: NO_NODE,
            level: 0,
            too_deep_count: 0,
        }
    }

    /// Returns the lines of the tree, down to `levels_max` levels below the roots. Each function is
    /// followed by its callees, those with the largest total time first.
    #[must_use]
    pub fn lines(&self, names: &SiteNames, levels_max: usize) -> Vec<TreeLine> {
        let mut lines = Vec::new();
        self.visit(levels_max, |node, level, root| {
            lines.push(TreeLine {
                level,
                name: node.name.map_or(root, |name| names.text_of(name)).to_owned(),
                calls: node.calls,
                total_ns: node.total_ns,
                self_ns: node.self_ns,
            });
        });
        lines
    }

    /// Calls `each` with every call stack whose last function has self time. Its arguments are the
    /// stack, root first, and that time in ns.
    ///
    /// # Errors
    /// Those of `each`.
    pub fn for_each_stack<E>(
        &self,
        names: &SiteNames,
        mut each: impl FnMut(&[&str], u64) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut stack = Vec::new();
        let mut outcome = Ok(());
        self.visit(usize::MAX, |node, level, root| {
            stack.truncate(level);
            stack.push(node.name.map_or(root, |name| names.text_of(name)));
            if node.self_ns > 0 && outcome.is_ok() {
                outcome = each(&stack, node.self_ns);
            }
        });
        outcome
    }

    /// Returns the time in all outermost calls.
    #[must_use]
    pub fn outermost_calls_time_ns(&self) -> u64 {
        let roots = self.roots.iter().map(|(root, _)| self.nodes[*root as usize].total_ns);
        roots.fold(0, u64::saturating_add)
    }

    /// Calls `each` for every node down to `levels_max`, with its level and its root's title.
    fn visit<'a>(&'a self, levels_max: usize, mut each: impl FnMut(&'a Node, usize, &'a str)) {
        for (root, title) in &self.roots {
            let mut left = vec![(*root, 0)];
            while let Some((at, level)) = left.pop() {
                let node = &self.nodes[at as usize];
                each(node, level, title);
                if level < levels_max {
                    let begin = left.len();
                    let mut child = node.first_child;
                    while child != NO_NODE {
                        left.push((child, level + 1));
                        child = self.nodes[child as usize].next_sibling;
                    }
                    // `left` is a stack: the child sorted last is visited first.
                    left[begin..].sort_by_key(|(child, _)| {
                        (self.nodes[*child as usize].total_ns, std::cmp::Reverse(*child))
                    });
                }
            }
        }
    }

    /// Appends a node, makes it the first child of `parent`, and returns its index.
    fn add_node(&mut self, name: Option<NameId>, parent: u32) -> u32 {
        let at = self.nodes.len() as u32;
        let mut next_sibling = NO_NODE;
        if let Some(parent) = self.nodes.get_mut(parent as usize) {
            next_sibling = std::mem::replace(&mut parent.first_child, at);
        }
        self.nodes.push(Node {
            name,
            parent,
            first_child: NO_NODE,
            next_sibling,
            last_child: NO_NODE,
            calls: 0,
            total_ns: 0,
            self_ns: 0,
        });
        at
    }

    /// Returns the index of the child `name` of the innermost open call. Adds the child if
    /// necessary.
    fn find_or_add_child(&mut self, name: NameId) -> u32 {
        let last = self.nodes[self.current as usize].last_child;
        if self.nodes.get(last as usize).is_some_and(|node| node.name == Some(name)) {
            return last;
        }
        let child = match self.children.get(&(self.current, name)) {
            Some(child) => *child,
            None => {
                let child = self.add_node(Some(name), self.current);
                self.children.insert((self.current, name), child);
                child
            }
        };
        self.nodes[self.current as usize].last_child = child;
        child
    }
}

impl TraceVisitor for CallTree {
    fn start_thread(&mut self, process: usize, thread_info: &ThreadInfo<'_>) -> io::Result<()> {
        if self.grouping == TreeGrouping::Threads || self.process != Some(process) {
            self.process = Some(process);
            let root = self.add_node(None, NO_NODE);
            let program = thread_info.program.rsplit('/').next().unwrap_or_default();
            let title = match self.grouping {
                TreeGrouping::Processes => format!("{program} [{}]", thread_info.pid),
                TreeGrouping::Threads => {
                    format!(
                        "{program} [{}] {} [{}]",
                        thread_info.pid, thread_info.thread.name, thread_info.thread.tid
                    )
                }
            };
            self.roots.push((root, title));
        }
        self.current = self.roots.last().map_or(NO_NODE, |(root, _)| *root);
        (self.level, self.too_deep_count) = (0, 0);
        Ok(())
    }

    fn enter_call(&mut self, _: &EventPosition, name: NameId, _: &[u64]) -> io::Result<()> {
        if self.level >= TREE_LEVELS_MAX {
            self.too_deep_count += 1;
            return Ok(());
        }
        self.level += 1;
        self.current = self.find_or_add_child(name);
        Ok(())
    }

    fn leave_call(&mut self, _: &EventPosition, call: &CompletedCall) -> io::Result<()> {
        let node = &mut self.nodes[self.current as usize];
        node.self_ns = node.self_ns.saturating_add(call.self_ns);
        if self.too_deep_count > 0 {
            self.too_deep_count -= 1;
            return Ok(());
        }
        node.calls += 1;
        node.total_ns = node.total_ns.saturating_add(call.total_ns);
        self.level -= 1;
        self.current = node.parent;
        if self.level == 0 {
            let root = &mut self.nodes[self.current as usize];
            root.calls += 1;
            root.total_ns = root.total_ns.saturating_add(call.total_ns);
        }
        Ok(())
    }
}
