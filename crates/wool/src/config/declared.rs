//! One declaration of a setting makes its field, its key, its variable, its line of help and its row of the documentation.

/// A setting as its declaration says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The heading that it stands under.
    pub group: &'static str,
    /// Its key in the file.
    pub key: &'static str,
    /// A value as it is written in the file: the default, where that is the same on every machine.
    pub example: &'static str,
    /// What it means: a short sentence first, then what else there is to know.
    pub words: &'static str,
}

impl Setting {
    /// The environment variable that says the same, in whichever table it stands.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("WOOL_{}", self.key.to_uppercase())
    }

    /// The first sentence of what it means, as it follows a name.
    #[must_use]
    pub fn summary(&self) -> &'static str {
        let words = self.words.trim();
        words.split_once(". ").map_or(words, |(first, _)| first).trim_end_matches('.')
    }
}

/// Declares a struct of settings. For each: what it means, `key: Type = default, "example";`.
macro_rules! settings {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($group:literal:
                $(
                    $(#[doc = $words:literal])+
                    $(#[serde($($serde:tt)*)])?
                    $key:ident: $type:ty = $default:expr, $example:literal;
                )+
            )+
            $(table $table:ident: $of:ty;)?
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $($(
                $(#[doc = $words])+
                $(#[serde($($serde)*)])?
                pub $key: $type,
            )+)+
            $(
                #[doc = "What measurements and tests set, and users leave alone."]
                pub $table: $of,
            )?
        }

        impl $name {
            /// All of them, as they are declared.
            pub const DECLARED: &[$crate::config::Setting] = &[
                $($($crate::config::Setting {
                    group: $group,
                    key: stringify!($key),
                    example: $example,
                    words: concat!($($words, "\n"),+),
                },)+)+
            ];
        }

        impl Default for $name {
            fn default() -> Self {
                Self {
                    $($($key: $default,)+)+
                    $($table: <$of>::default(),)?
                }
            }
        }
    };
}

pub(super) use settings;
