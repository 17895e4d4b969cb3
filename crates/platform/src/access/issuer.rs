//! Making, listing and removing tokens, as doors ask for it.

use std::sync::Arc;

use function::Label;

use super::{NewToken, Permit, Secret, Token, TokenError, Tokens, to};

/// Makes, lists and removes tokens for callers with a permit.
#[derive(Clone, Debug)]
pub struct Issuer {
    tokens: Arc<Tokens>,
}

impl Issuer {
    /// Of the tokens of one worker.
    #[must_use]
    pub fn new(tokens: Arc<Tokens>) -> Self {
        Self { tokens }
    }

    /// Makes a token. The secret is shown here once; only its hash is kept.
    ///
    /// # Errors
    /// When the name is taken or the request makes no sense; nothing has changed then.
    pub async fn create(
        &self,
        _: &Permit<to::CreateToken>,
        new: NewToken,
    ) -> Result<(Arc<Token>, Secret), TokenError> {
        let tokens = Arc::clone(&self.tokens);
        let made = tokio::task::spawn_blocking(move || tokens.create(new)).await;
        let (token, secret) = made.unwrap_or(Err(TokenError::BrokeOff))?;
        tracing::info!(token = %token.name, "made a token");
        Ok((token, secret))
    }

    /// All tokens, expired ones included, by name.
    #[must_use]
    pub fn list(&self, _: &Permit<to::ListTokens>) -> Vec<Arc<Token>> {
        self.tokens.list()
    }

    /// Removes a token; says whether it was there.
    ///
    /// # Errors
    /// When the disk refused; nothing has changed then.
    pub async fn remove(
        &self,
        _: &Permit<to::RemoveToken>,
        name: Label,
    ) -> Result<bool, TokenError> {
        let (tokens, wanted) = (Arc::clone(&self.tokens), name.clone());
        let removed = tokio::task::spawn_blocking(move || tokens.remove(&wanted)).await;
        let removed = removed.unwrap_or(Err(TokenError::BrokeOff))?;
        if removed {
            tracing::info!(token = %name, "removed a token");
        }
        Ok(removed)
    }
}
