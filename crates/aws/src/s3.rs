//! Objects of S3: <https://docs.aws.amazon.com/AmazonS3/latest/API/API_GetObject.html>.

use std::io::Read;
use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use ureq::http::header::CONTENT_LENGTH;

use crate::signed::{Client, Failure};

/// What stands in a path as it is. The slashes of a key are its own.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PLAIN_OF_KEY: &AsciiSet = &PLAIN.remove(b'/');

/// An object that is read.
pub struct Object {
    /// Its length in bytes.
    pub length: u64,
    /// Its bytes, from the first on.
    pub reader: Box<dyn Read + Send>,
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object").field("length", &self.length).finish_non_exhaustive()
    }
}

impl Client {
    /// Opens an object of a bucket, or one version of it.
    ///
    /// # Errors
    /// When it is not there, may not be read, or the service does not answer.
    pub fn open_object(
        &self,
        bucket: &str,
        key: &str,
        version: Option<&str>,
    ) -> Result<Object, Failure> {
        let bucket = utf8_percent_encode(bucket, PLAIN);
        let key = utf8_percent_encode(key, PLAIN_OF_KEY);
        let version = version.map(|id| format!("?versionId={}", utf8_percent_encode(id, PLAIN)));
        let path = format!("/{bucket}/{key}{}", version.unwrap_or_default());
        let mut answer = self.send("GET", &path, &[], b"", Duration::ZERO)?;
        if answer.status() != 200 {
            let status = answer.status();
            let text = String::from_utf8_lossy(&self.read(&mut answer)?).into_owned();
            let code = element(&text, "Code").unwrap_or_else(|| status.as_str().to_owned());
            let message = element(&text, "Message").unwrap_or_default();
            return Err(Failure::Refused { code, message });
        }
        let length = answer.headers().get(CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let length = length.ok_or_else(|| self.strange("it says no length"))?;
        let reader = answer.into_body().into_with_config().limit(length).reader();
        Ok(Object { length, reader: Box::new(reader) })
    }
}

/// The text of an XML element of that name, of the few that an error has: none holds another, and none has attributes.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inside, _) = rest.split_once(&format!("</{name}>"))?;
    let plain = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    let inside = inside.to_owned();
    Some(plain.iter().fold(inside, |text, (escaped, plain)| text.replace(escaped, plain)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_s3_has_a_code_and_words() {
        let text = "<?xml version=\"1.0\"?><Error><Code>NoSuchKey</Code><Message>a &lt;b&gt; &amp;lt;</Message></Error>";
        assert_eq!(element(text, "Code").as_deref(), Some("NoSuchKey"));
        assert_eq!(element(text, "Message").as_deref(), Some("a <b> &lt;"));
        for broken in ["", "<Code>", "</Code><Code>", "not XML"] {
            assert_eq!(element(broken, "Code"), None);
        }
    }
}
