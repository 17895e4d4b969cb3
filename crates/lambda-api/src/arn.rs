//! Names and ARNs of functions and layers.
//!
//! A request may leave out the first parts of a function's ARN. A layer has its bare name or its
//! whole ARN:
//!
//! ```text
//!   arn:aws:lambda:us-east-1:123456789012:function:NAME:QUALIFIER
//!                            123456789012:function:NAME
//!                                         function:NAME      NAME:QUALIFIER      NAME
//!   arn:aws:lambda:us-east-1:123456789012:layer:NAME:VERSION                     NAME
//! ```
//! What stands before the name counts only when more follows: `function` alone is a name.

use std::sync::LazyLock;

use crate::Fault;
use crate::fault::shortened;
use crate::model::{Kind, MODEL, Pattern};

/// In characters, of a function's name without what may stand around it.
const MAX_NAME: usize = 64;
/// In characters, of a layer's name.
const MAX_LAYER_NAME: usize = 140;

static REGION: LazyLock<Pattern> = LazyLock::new(|| {
    Pattern::from(r"(eusc-)?[a-z]{2}((-gov)|(-iso([a-z]?)))?-[a-z]+-\d{1}".to_owned())
});

/// What ARNs of this service begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The partition of the service, such as `aws`.
    pub partition: String,
    /// `us-east-1`: two letters, a word, a digit. No other form is read.
    pub region: String,
    /// The number of the account: twelve digits.
    pub account: String,
}

impl Place {
    /// Whether a text is a region as ARNs name them.
    #[must_use]
    pub fn is_region(text: &str) -> bool {
        REGION.fits(text)
    }

    /// Of a function, or of its version or alias.
    #[must_use]
    pub fn function_arn(&self, name: &str, qualifier: Option<&str>) -> String {
        let arn = self.arn("function", name);
        match qualifier {
            Some(qualifier) => format!("{arn}:{qualifier}"),
            None => arn,
        }
    }

    /// Of a layer, without a version.
    #[must_use]
    pub fn layer_arn(&self, name: &str) -> String {
        self.arn("layer", name)
    }

    /// Of one version of a layer.
    #[must_use]
    pub fn layer_version_arn(&self, name: &str, version: u64) -> String {
        format!("{}:{version}", self.arn("layer", name))
    }

    fn arn(&self, kind: &str, name: &str) -> String {
        let Self { partition, region, account } = self;
        format!("arn:{partition}:lambda:{region}:{account}:{kind}:{name}")
    }
}

/// A function, or its version or alias, of this account and region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionRef {
    /// At most 64 letters, digits, `-`, `_` and `.`.
    pub name: String,
    /// A number, an alias, or `$LATEST`.
    pub qualifier: Option<String>,
}

impl FunctionRef {
    /// Reads a `FunctionName`; `qualifier` is the parameter `Qualifier` beside it.
    ///
    /// # Errors
    ///
    /// `ValidationException` for what names no function, `InvalidParameterValueException` for a
    /// name that is too long and for two qualifiers that differ, `ResourceNotFoundException` for
    /// another region, and `AccessDeniedException` for another account.
    pub fn read(text: &str, qualifier: Option<&str>, place: &Place) -> Result<Self, Fault> {
        let named = Named::read(text)
            .ok_or_else(|| malformed(text, "functionName", "NamespacedFunctionName"))?;
        if named.name.len() > MAX_NAME {
            return Err(Fault::invalid_parameter_value(format!(
                "1 validation error detected: Value '{}' at 'functionName' failed to satisfy \
                 constraint: Member must have length less than or equal to {MAX_NAME}",
                named.name
            )));
        }
        if let (Some(one), Some(other)) = (named.qualifier, qualifier)
            && one != other
        {
            return Err(Fault::invalid_parameter_value(
                "The derived qualifier from the function name does not match the specified \
                 qualifier.",
            ));
        }
        if let Some(region) = named.region.filter(|region| *region != place.region) {
            return Err(Fault::resource_not_found(format!(
                "Functions from '{region}' are not reachable in this region ('{}')",
                place.region
            )));
        }
        if named.partition.is_some_and(|partition| partition != place.partition) {
            return Err(Fault::resource_not_found(format!("Function not found: {text}")));
        }
        if named.account.is_some_and(|account| account != place.account) {
            return Err(Fault::access_denied(format!(
                "The caller is not authorized to perform this action on resource: {text}"
            )));
        }
        let qualifier = named.qualifier.or(qualifier).map(str::to_owned);
        Ok(Self { name: named.name.to_owned(), qualifier })
    }
}

/// The parts of what names a function.
struct Named<'a> {
    partition: Option<&'a str>,
    region: Option<&'a str>,
    account: Option<&'a str>,
    name: &'a str,
    qualifier: Option<&'a str>,
}

impl<'a> Named<'a> {
    fn read(text: &'a str) -> Option<Self> {
        // A whole ARN has eight parts: one more is enough to refuse it.
        let parts: Vec<&str> = text.splitn(9, ':').collect();
        let mut rest = parts.as_slice();
        let mut partition = None;
        if let ["arn", given, "lambda", following @ ..] = rest
            && !following.is_empty()
            && given.starts_with("aws")
        {
            (partition, rest) = (Some(*given), following);
        }
        let mut leading = |is: fn(&str) -> bool| match rest {
            [first, following @ ..] if !following.is_empty() && is(first) => {
                rest = following;
                Some(*first)
            }
            _ => None,
        };
        let region = leading(|part| REGION.fits(part));
        let account = leading(is_account);
        let is_function = leading(|part| part == "function").is_some();
        // A whole ARN leaves nothing out: what it names may be a layer.
        if partition.is_some() && !(region.is_some() && account.is_some() && is_function) {
            return None;
        }
        let (name, qualifier) = match rest {
            [name] => (*name, None),
            [name, qualifier] => (*name, Some(*qualifier)),
            _ => return None,
        };
        let is_name = is_word(name, b"-_.");
        let is_qualifier =
            |one: &str| is_word(one, b"-_") || ["$LATEST", "$LATEST.PUBLISHED"].contains(&one);
        let fits = is_name && qualifier.is_none_or(is_qualifier);
        fits.then_some(Self { partition, region, account, name, qualifier })
    }
}

/// A layer, or its version, of this account and region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerRef {
    /// Letters, digits, `-` and `_`.
    pub name: String,
    /// The number of its version; the first is 1.
    pub version: Option<u64>,
}

impl LayerRef {
    /// Reads a `LayerName`, the ARN of a layer, or that of a version.
    ///
    /// # Errors
    ///
    /// `ValidationException` for what names no layer, `InvalidParameterValueException` for one in
    /// another region, and `AccessDeniedException` for one of another account.
    pub fn read(text: &str, place: &Place) -> Result<Self, Fault> {
        let malformed = || malformed(text, "layerName", "LayerNameOrArn");
        let parts: Vec<&str> = text.splitn(9, ':').collect();
        let (arn, name, version) = match parts.as_slice() {
            [name] => (None, *name, None),
            ["arn", arn @ .., "layer", name] => (Some(arn), *name, None),
            ["arn", arn @ .., "layer", name, version] => (Some(arn), *name, Some(*version)),
            _ => return Err(malformed()),
        };
        let version = match version.map(str::parse) {
            Some(Ok(version)) if version > 0 => Some(version),
            None => None,
            Some(_) => return Err(malformed()),
        };
        if !is_word(name, b"-_") || name.len() > MAX_LAYER_NAME {
            return Err(malformed());
        }
        match arn {
            None => {}
            Some([partition, "lambda", region, account])
                if partition.starts_with("aws") && is_account(account) =>
            {
                if *region != place.region {
                    return Err(Fault::invalid_parameter_value(format!(
                        "Layers are not in the same region as the function. Layers are expected to \
                         be in region {}.",
                        place.region
                    )));
                }
                if *account != place.account || *partition != place.partition {
                    return Err(Fault::access_denied(format!(
                        "The caller is not authorized to perform: lambda:GetLayerVersion on \
                         resource: {text} because no resource-based policy allows it"
                    )));
                }
            }
            Some(_) => return Err(malformed()),
        }
        Ok(Self { name: name.to_owned(), version })
    }
}

fn is_account(text: &str) -> bool {
    text.len() == 12 && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Letters, digits and some more, at least one.
fn is_word(text: &str, more: &[u8]) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || more.contains(&byte);
    !text.is_empty() && text.bytes().all(fits)
}

/// What the service says of a text that does not fit the pattern of this shape.
fn malformed(text: &str, member: &str, shape: &str) -> Fault {
    let Kind::String { pattern: Some(pattern), .. } = &MODEL.shape(shape).kind else {
        panic!("{shape} has a pattern")
    };
    Fault::violations(&[format!(
        "Value '{}' at '{member}' failed to satisfy constraint: Member must satisfy regular \
         expression pattern: {}",
        shortened(text),
        pattern.text
    )])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn place() -> Place {
        Place {
            partition: "aws".to_owned(),
            region: "us-east-1".to_owned(),
            account: "123456789012".to_owned(),
        }
    }

    fn function(text: &str) -> (String, Option<String>) {
        let found = FunctionRef::read(text, None, &place());
        let found = found.unwrap_or_else(|fault| panic!("{text}: {fault}"));
        (found.name, found.qualifier)
    }

    fn refused<T>(result: Result<T, Fault>) -> (&'static str, u16) {
        let fault = result.err().expect("it is refused");
        (fault.code(), fault.status())
    }

    #[test]
    fn a_function_is_named_in_every_form() {
        let arn = "arn:aws:lambda:us-east-1:123456789012:function:f";
        let prefixes = ["", "function:", "123456789012:function:", "123456789012:", "us-east-1:"];
        for prefix in prefixes.into_iter().chain([arn.strip_suffix('f').unwrap()]) {
            assert_eq!(function(&format!("{prefix}f")), ("f".to_owned(), None));
            for qualifier in ["1", "$LATEST", "$LATEST.PUBLISHED", "live-1_a"] {
                let text = format!("{prefix}f:{qualifier}");
                assert_eq!(function(&text), ("f".to_owned(), Some(qualifier.to_owned())), "{text}");
            }
        }
        for word in ["function", "arn", "123456789012", "us-east-1", "-_", "a.b"] {
            assert_eq!(function(word), (word.to_owned(), None));
            assert_eq!(function(&format!("function:{word}")), (word.to_owned(), None));
        }
    }

    #[test]
    fn what_names_no_function_is_refused() {
        for text in [
            "",
            ":",
            "f:",
            ":f",
            "f f",
            "f:1:2",
            "fé",
            "f/g",
            "f:$LATES",
            "f:$latest",
            "function:f:1:",
            "arn:aws:lambda:us-east-1:123456789012:layer:f",
            "arn:aws:s3:us-east-1:123456789012:function:f",
            "arn:aws:lambda:us-east-1:12345678901:function:f",
        ] {
            let result = FunctionRef::read(text, None, &place());
            assert_eq!(refused(result), ("ValidationException", 400), "{text}");
        }
        let longest = "f".repeat(64);
        assert_eq!(function(&longest).0, longest);
        let result = FunctionRef::read(&"f".repeat(65), None, &place());
        assert_eq!(refused(result), ("InvalidParameterValueException", 400));
    }

    #[test]
    fn a_qualifier_stands_in_one_place_or_is_the_same_in_both() {
        let read = |text, qualifier| FunctionRef::read(text, qualifier, &place());
        assert_eq!(read("f", Some("1")).unwrap().qualifier.unwrap(), "1");
        assert_eq!(read("f:1", Some("1")).unwrap().qualifier.unwrap(), "1");
        let result = read("f:1", Some("2"));
        assert_eq!(refused(result), ("InvalidParameterValueException", 400));
    }

    #[test]
    fn other_regions_and_accounts_are_out_of_reach() {
        let function = |region: &str, account: &str| {
            let text = format!("arn:aws:lambda:{region}:{account}:function:f");
            FunctionRef::read(&text, None, &place())
        };
        let elsewhere = function("eu-west-1", "123456789012").unwrap_err();
        let message = "Functions from 'eu-west-1' are not reachable in this region ('us-east-1')";
        assert_eq!((elsewhere.status(), elsewhere.message()), (404, message));
        let foreign = function("us-east-1", "210987654321");
        assert_eq!(refused(foreign), ("AccessDeniedException", 403));
        let china = "arn:aws-cn:lambda:us-east-1:123456789012:function:f";
        let result = FunctionRef::read(china, None, &place());
        assert_eq!(refused(result), ("ResourceNotFoundException", 404));
    }

    #[test]
    fn a_layer_is_a_name_an_arn_or_a_version() {
        let read = |text: &str| LayerRef::read(text, &place());
        let layer = |name: &str, version| Ok(LayerRef { name: name.to_owned(), version });
        assert_eq!(read("l-1_a"), layer("l-1_a", None));
        assert_eq!(read("arn:aws:lambda:us-east-1:123456789012:layer:l"), layer("l", None));
        assert_eq!(read("arn:aws:lambda:us-east-1:123456789012:layer:l:7"), layer("l", Some(7)));
        for text in ["", "a.b", "l:1", "arn:aws:lambda:us-east-1:123456789012:layer:l:0"] {
            assert_eq!(refused(read(text)), ("ValidationException", 400), "{text}");
        }
        let elsewhere = read("arn:aws:lambda:eu-west-1:123456789012:layer:l:1");
        assert_eq!(refused(elsewhere), ("InvalidParameterValueException", 400));
        let foreign = read("arn:aws:lambda:us-east-1:210987654321:layer:l:1");
        assert_eq!(refused(foreign), ("AccessDeniedException", 403));
    }

    proptest! {
        #[test]
        fn what_is_made_can_be_read(
            partition in "aws(-cn|-us-gov)?",
            region in "[a-z]{2}(-gov)?-[a-z]{4,9}-[1-9]",
            account in "[0-9]{12}",
            name in "[a-zA-Z0-9_-]{1,64}|function|arn|[0-9]{12}",
            qualifier in prop::option::of(r"[a-zA-Z0-9_-]{1,128}|\$LATEST"),
            version in 1_u64..,
        ) {
            let place = Place { partition, region, account };
            let arn = place.function_arn(&name, qualifier.as_deref());
            let read = FunctionRef::read(&arn, None, &place);
            prop_assert_eq!(read, Ok(FunctionRef { name: name.clone(), qualifier }));
            let read = LayerRef::read(&place.layer_arn(&name), &place);
            prop_assert_eq!(read, Ok(LayerRef { name: name.clone(), version: None }));
            let read = LayerRef::read(&place.layer_version_arn(&name, version), &place);
            prop_assert_eq!(read, Ok(LayerRef { name, version: Some(version) }));
        }

        #[test]
        fn any_text_names_a_function_or_is_refused(
            text in r"(arn:|aws:|lambda:|us-east-1:|123456789012:|function:|layer:|f|:1|é){0,8}",
        ) {
            if let Ok(FunctionRef { name, qualifier }) = FunctionRef::read(&text, None, &place()) {
                let arn = place().function_arn(&name, qualifier.as_deref());
                let again = FunctionRef::read(&arn, qualifier.as_deref(), &place());
                prop_assert_eq!(again, Ok(FunctionRef { name, qualifier }));
                let pattern = malformed("", "", "NamespacedFunctionName");
                let (_, pattern) = pattern.message().split_once("pattern: ").unwrap();
                prop_assert!(Pattern::from(pattern.to_owned()).fits(&text), "{}", text);
            }
            // No text makes it panic.
            drop(LayerRef::read(&text, &place()));
        }
    }
}
