//! Tokens as the rows of their store.

use std::collections::BTreeSet;

use store::{Cause, TokenRow};

use super::token::TokenHash;
use super::{Patterns, Scope, Token, TokenError};

pub(super) fn to_row(token: &Token, hash: &TokenHash) -> TokenRow {
    TokenRow {
        id: token.id.clone(),
        name: token.name.to_string(),
        tenant: token.tenant.to_string(),
        hash: hash.0,
        scopes: token.scopes.iter().map(Scope::to_string).collect(),
        functions: token.functions.written().to_vec(),
        created: token.created,
        expires: token.expires,
    }
}

/// # Errors
/// When the row is not one that [`to_row`] makes.
pub(super) fn from_row(row: TokenRow) -> Result<(TokenHash, Token), TokenError> {
    let named = format!("the token {}", row.name);
    parse(row).map_err(|source| TokenError::Row { row: named, source })
}

fn parse(row: TokenRow) -> Result<(TokenHash, Token), Cause> {
    let scopes: BTreeSet<Scope> =
        row.scopes.iter().map(|scope| scope.parse()).collect::<Result<_, _>>()?;
    if scopes.is_empty() {
        return Err("it has no scope".into());
    }
    let token = Token {
        id: row.id,
        name: row.name.parse()?,
        tenant: row.tenant.parse()?,
        scopes,
        functions: Patterns::try_from(row.functions)?,
        created: row.created,
        expires: row.expires,
    };
    Ok((TokenHash(row.hash), token))
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;

    fn row() -> TokenRow {
        TokenRow {
            id: "4f1c09a2b7d3".to_owned(),
            name: "ci".to_owned(),
            tenant: "acme".to_owned(),
            hash: [7; 32],
            scopes: ["deploy", "read"].map(str::to_owned).into(),
            functions: vec!["report-*".to_owned()],
            created: UNIX_EPOCH,
            expires: Some(UNIX_EPOCH + Duration::from_millis(1)),
        }
    }

    #[test]
    fn a_row_becomes_a_token_and_the_same_row_again() {
        let (hash, token) = from_row(row()).unwrap();
        assert_eq!(token.scopes, [Scope::Deploy, Scope::Read].into());
        assert_eq!(to_row(&token, &hash), row());
    }

    #[test]
    fn a_row_that_no_release_has_written_is_named_with_its_cure() {
        let strange = [
            TokenRow { tenant: "a b".to_owned(), ..row() },
            TokenRow { scopes: ["everything".to_owned()].into(), ..row() },
            TokenRow { scopes: [].into(), ..row() },
            TokenRow { functions: vec!["report-[".to_owned()], ..row() },
        ];
        for row in strange {
            let error = from_row(row).unwrap_err().to_string();
            assert!(error.starts_with("the token ci cannot be read: "), "{error}");
            assert!(error.contains("`wool token rm`"), "{error}");
        }
    }
}
