//! The suite that every implementation passes.
//!
//! ```ignore
//! #[derive(Default)]
//! struct Directory(…);
//!
//! impl store::conformance::Backend for Directory { … }
//!
//! store::conformance!(Directory); // A test for each function of this page.
//! ```
//!
//! Each function makes a new backend, and opens its stores again before it looks: what was
//! acknowledged is what a later process finds.

mod actions;
mod bundles;
mod functions;
mod layers;
mod secrets;
mod tokens;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub use actions::*;
pub use bundles::*;
pub use functions::*;
pub use layers::*;
pub use secrets::*;
pub use tokens::*;

use crate::{Actions, Bundles, Functions, Secrets, Tokens};

/// What holds content while no store is open: a directory, or memory. `default` makes an empty one.
pub trait Backend: Default {
    /// Opens the tokens of this backend. No other store of its tokens is open.
    fn tokens(&self) -> Box<dyn Tokens>;

    /// Opens the secrets of this backend. No other store of its secrets is open.
    fn secrets(&self) -> Box<dyn Secrets>;

    /// Opens the functions of this backend. No other store of its functions is open.
    fn functions(&self) -> Box<dyn Functions>;

    /// Opens the bundles of this backend.
    fn bundles(&self) -> Box<dyn Bundles>;

    /// Opens the audit log of this backend. No other store of its audit log is open.
    fn actions(&self) -> Box<dyn Actions>;
}

/// Makes a test of each function of [the suite](mod@crate::conformance) for a type that is a
/// [`Backend`](crate::conformance::Backend).
#[macro_export]
macro_rules! conformance {
    ($backend:ty) => {
        $crate::conformance! { $backend:
            a_new_store_holds_no_token
            a_token_comes_back_as_it_was_inserted
            a_tokens_times_are_kept_to_the_millisecond
            a_name_and_an_id_are_taken_once
            a_removed_token_is_gone_and_its_name_is_free
            that_there_was_a_token_outlives_its_removal
            tokens_are_listed_by_the_bytes_of_their_names
            a_token_may_have_any_name
            many_tokens_are_kept
            a_new_store_holds_no_secret
            a_secret_comes_back_as_it_was_put
            a_secret_that_is_put_again_is_replaced
            a_removed_secret_is_gone_and_the_others_stay
            a_forgotten_function_has_no_secret_and_the_others_keep_theirs
            the_first_witness_stays
            secrets_are_listed_by_tenant_function_and_key
            a_secret_may_have_any_name
            many_secrets_are_kept
            a_new_store_holds_no_function
            a_function_comes_back_as_it_was_put
            the_last_version_that_was_put_is_current
            a_version_that_is_put_again_is_as_old_as_before
            the_newest_versions_and_the_current_one_are_kept
            a_removed_function_is_gone_with_its_versions
            functions_are_listed_by_tenant_and_name
            each_published_version_has_the_next_number
            a_number_is_not_given_twice
            a_published_version_is_kept
            the_bundles_of_all_versions_are_told
            each_version_of_a_layer_has_the_next_number
            a_number_of_a_layer_is_not_given_twice
            a_policy_goes_with_its_version_of_a_layer
            the_bundles_of_layers_are_told
            an_alias_goes_with_its_function
            an_attachment_goes_with_its_function
            a_bundle_comes_back_as_it_was_packed
            a_bundle_that_is_there_is_not_packed_again
            a_bundle_that_could_not_be_packed_is_not_there
            only_retained_bundles_stay
            a_removed_bundle_is_packed_anew
            actions_are_read_in_the_order_in_which_they_came
            an_action_makes_room_in_its_own_group_alone
            tokens_and_secrets_share_a_backend
        }
    };
    ($backend:ty: $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::$name::<$backend>();
            }
        )*
    };
}

/// Names that an implementation might fold, escape, cut or take for syntax.
const ODD: [&str; 14] = [
    "Ci",
    "ci",
    " ci",
    "ci ",
    "ci'; DROP TABLE tokens; --",
    "\"ci\"",
    "%",
    "_",
    "*",
    "../ci/.",
    "line\nbreak",
    // One letter, written in two ways.
    "\u{e9}",
    "e\u{301}",
    "𝓬𝓲 🐑",
];

/// How many rows "many" are. Each is a write that waits for the disk.
const MANY: usize = 200;

fn at(millis: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(1_700_000_000_000 + millis)
}

/// Both stores of a backend can be open, and neither sees what the other holds.
pub fn tokens_and_secrets_share_a_backend<B: Backend>() {
    let backend = B::default();
    let (mut own_tokens, mut own_secrets) = (backend.tokens(), backend.secrets());
    let row = secrets::secret(&secrets::owner("default", "ci"), "ci", b"value");
    assert!(own_tokens.insert(&tokens::token("ci")).unwrap());
    own_secrets.put(&row).unwrap();
    assert!(own_tokens.remove("ci").unwrap());
    drop((own_tokens, own_secrets));
    assert_eq!((tokens::tokens(&backend), secrets::secrets(&backend)), (vec![], vec![row]));
}
