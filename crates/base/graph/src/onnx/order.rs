//! The nodes that the outputs need, in the order of their computation.

use std::collections::{HashMap, HashSet};

use super::proto::{GraphProto, NodeProto};
use super::{file_error, label};
use crate::GraphError;
use crate::walk::topological_order;

/// Returns the names that the outputs need, and the nodes that make them, sorted. Other nodes are
/// ignored and may be unsupported.
pub(super) fn needed_nodes(proto: &GraphProto) -> Result<(HashSet<&str>, Vec<usize>), GraphError> {
    let nodes = &proto.node;
    let known_names: HashSet<&str> =
        proto.initializer.iter().map(|t| t.name.as_str()).chain(proto.input.iter().map(|i| i.name.as_str())).collect();
    let mut maker: HashMap<&str, usize> = HashMap::new();
    for (i, n) in nodes.iter().enumerate() {
        for o in n.output.iter().filter(|o| !o.is_empty()) {
            if known_names.contains(o.as_str()) || maker.insert(o, i).is_some() {
                return Err(file_error(format!("`{o}` is made twice")));
            }
        }
    }
    let mut names: HashSet<&str> = HashSet::new();
    let mut used = vec![false; nodes.len()];
    let mut todo: Vec<&str> = proto.output.iter().map(|o| o.name.as_str()).collect();
    while let Some(name) = todo.pop() {
        if !names.insert(name) {
            continue;
        }
        if let Some(&i) = maker.get(name)
            && !std::mem::replace(&mut used[i], true)
        {
            todo.extend(nodes[i].input.iter().filter(|s| !s.is_empty()).map(String::as_str));
        }
    }
    let order = node_order(nodes, &used, &maker, &known_names)?;
    Ok((names, order))
}

/// Returns an order in which every used node follows the nodes that make its inputs.
fn node_order(
    nodes: &[NodeProto],
    used: &[bool],
    maker: &HashMap<&str, usize>,
    known_names: &HashSet<&str>,
) -> Result<Vec<usize>, GraphError> {
    let mut users: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    let mut unread = vec![0usize; nodes.len()];
    for (i, n) in nodes.iter().enumerate().filter(|(i, _)| used[*i]) {
        for name in n.input.iter().filter(|s| !s.is_empty()) {
            if let Some(&m) = maker.get(name.as_str()) {
                users[m].push(i);
                unread[i] += 1;
            } else if !known_names.contains(name.as_str()) {
                return Err(file_error(format!("node {}: nothing makes its input `{name}`", label(n))));
            }
        }
    }
    let order = topological_order(used, &users, unread);
    let mut is_ordered = vec![false; nodes.len()];
    order.iter().for_each(|&i| is_ordered[i] = true);
    if let Some(stuck) = (0..nodes.len()).find(|&i| used[i] && !is_ordered[i]) {
        return Err(file_error(format!("the graph has a cycle through or before node {}", label(&nodes[stuck]))));
    }
    Ok(order)
}
