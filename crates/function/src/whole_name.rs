//! A function's name together with its tenant.

use std::borrow::Cow;
use std::fmt;

use crate::label::{DEFAULT_TENANT, Label};
use crate::name::FunctionName;

/// A function's whole name: its own, and whose it is. Two tenants may each have a function of one name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WholeName {
    tenant: String,
    name: String,
}

impl WholeName {
    /// A tenant's function.
    #[must_use]
    pub fn new(tenant: &Label, name: &FunctionName) -> Self {
        Self { tenant: tenant.to_string(), name: name.to_string() }
    }

    /// A name that was checked before it was stored.
    #[must_use]
    pub fn stored(tenant: String, name: String) -> Self {
        Self { tenant, name }
    }

    /// The tenant that owns the function.
    #[must_use]
    pub fn tenant(&self) -> &str {
        &self.tenant
    }

    /// The function's name without its tenant.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its directory among others of its kind.
    #[must_use]
    pub fn directory(&self) -> Cow<'_, str> {
        directory(&self.tenant, &self.name)
    }
}

/// A function's directory among others of its kind: no name begins with `@`.
#[must_use]
pub fn directory<'a>(tenant: &str, name: &'a str) -> Cow<'a, str> {
    if tenant == DEFAULT_TENANT {
        Cow::Borrowed(name)
    } else {
        Cow::Owned(format!("@{tenant}/{name}"))
    }
}

impl fmt::Display for WholeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tenant != DEFAULT_TENANT {
            write!(f, "{}/", self.tenant)?;
        }
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_functions_have_one_directory() {
        let whole = |tenant: &str, name: &str| {
            WholeName::new(&tenant.parse().unwrap(), &name.parse().unwrap())
        };
        assert_eq!(whole("default", "f").directory(), "f");
        assert_eq!(whole("acme", "f").directory(), "@acme/f");
        assert_eq!(whole("acme", "f").to_string(), "acme/f");
    }
}
