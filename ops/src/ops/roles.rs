//! Sequences sorted by role; within a role they keep their order.

use crate::Error;
use lockstep_core::ragged::Offsets;
use lockstep_core::require;

/// Roles are below this, because memory is allocated for every number up to the largest.
pub const ROLES: u32 = 1 << 16;

/// A stable sort by role.
pub(super) struct Roles {
    /// Offsets of roles in `order`, `[P+1]`.
    cu_roles: Vec<u32>,
    /// Sequences by role, `[S]`.
    pub(super) order: Vec<u32>,
}

impl Roles {
    pub(super) fn new(roles: &[u32], known: usize) -> Result<Self, Error> {
        if let Some(index) = roles.iter().position(|role| *role >= ROLES || *role as usize >= known) {
            let expected =
                if roles[index] >= ROLES { "a role below 65536" } else { "a role that has a state" };
            return Err(require::value("roles", Some(index), expected, roles[index]).into());
        }
        let mut order: Vec<u32> = (0..roles.len() as u32).collect();
        order.sort_by_key(|i| roles[*i as usize]);
        let mut cu_roles = vec![0; known + 1];
        roles.iter().for_each(|role| cu_roles[*role as usize + 1] += 1);
        for role in 0..known {
            cu_roles[role + 1] += cu_roles[role];
        }
        Ok(Roles { cu_roles, order })
    }

    pub(super) fn offsets(&self) -> Result<Offsets<'_>, Error> {
        Ok(Offsets::new("cu_roles", &self.cu_roles, self.order.len(), "sequences")?)
    }
}
