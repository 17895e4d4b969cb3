//! Layers: publishing, showing, listing and removing their versions.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use function::LayerName;
use lambda_api::Fault;
use lambda_api::arn::LayerRef;
use platform::access::{Permit, Purpose, to};
use platform::deploy::DeployError;
use platform::deploy::workshop::MakeError;
use platform::logs::stamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use store::LayerRow;

use super::call::{Answer, Call};
use super::code::Code;
use super::paging::{of_number, page};
use crate::error::ApiError;

/// What is kept of a version of a layer beside its files.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Kept {
    pub(super) code_sha256: String,
    pub(super) code_size: u64,
    description: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    license: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    runtimes: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    architectures: Option<Vec<String>>,
}

impl Kept {
    /// Of a version of a layer.
    ///
    /// # Errors
    /// When another program wrote it.
    pub(super) fn of(row: &LayerRow) -> Result<Self, Fault> {
        serde_json::from_str(&row.version.text).map_err(|error| {
            ApiError::internal(format!("what is kept of the layer cannot be read: {error}")).into()
        })
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedPublish {
    layer_name: String,
    content: Code,
    description: Option<String>,
    license_info: Option<String>,
    compatible_runtimes: Option<Vec<String>>,
    compatible_architectures: Option<Vec<String>>,
}

/// `PublishLayerVersion`.
pub(super) async fn publish(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedPublish = call.read()?;
    let layer = named(&call, &asked.layer_name)?;
    let permit = permit::<to::PublishLayer>(&call, &layer.name)?;
    let archive = asked.content.archive(&call, &permit).await?;
    call.forget_body();
    let kept = Kept {
        code_sha256: archive.sha256.clone(),
        code_size: archive.bytes,
        description: asked.description.unwrap_or_default(),
        license: asked.license_info,
        runtimes: asked.compatible_runtimes,
        architectures: asked.compatible_architectures,
    };
    let text =
        serde_json::to_string(&kept).map_err(|error| ApiError::internal(error.to_string()))?;
    let (file, held) = archive.into_file();
    let deployer = Arc::clone(&call.app.deployer);
    let published = call.carry_out(async move {
        let published = deployer.publish_layer(&permit, file, text).await;
        drop(held);
        published.map_err(refused)
    });
    let row = published.await?;
    call.about(&format!("layer {}:{}", row.layer.name(), row.number));
    Answer::json(&whole(&call, &row)?)
}

/// Why nothing was published, in the service's words.
fn refused(error: DeployError) -> Fault {
    match &error {
        DeployError::Make(MakeError::Function { step: "bundle", message }) => {
            Fault::invalid_parameter_value(format!(
                "Could not unzip uploaded file. Please check your file, then try to upload again. ({message})"
            ))
        }
        DeployError::Make(MakeError::Function { message, .. }) => {
            Fault::invalid_parameter_value(message.clone())
        }
        _ => ApiError::from(&error).into(),
    }
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Asked {
    layer_name: String,
    version_number: i64,
}

/// `GetLayerVersion`.
pub(super) async fn get(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let layer = named(&call, &asked.layer_name)?;
    let number = number(asked.version_number)?;
    Answer::json(&whole(&call, &*shown(&call, &layer.name, number)?)?)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedArn {
    arn: String,
}

/// `GetLayerVersionByArn`.
pub(super) async fn get_by_arn(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedArn = call.read()?;
    let layer = named(&call, &asked.arn)?;
    let number = layer.version.and_then(|number| u32::try_from(number).ok());
    let number = number.ok_or_else(not_there)?;
    Answer::json(&whole(&call, &*shown(&call, &layer.name, number)?)?)
}

/// The version of a layer that a request is about.
fn shown(call: &Call, name: &LayerName, number: u32) -> Result<Arc<LayerRow>, Fault> {
    let permit = permit::<to::ShowLayer>(call, name)?;
    call.app.layers.show(&permit, number).ok_or_else(not_there)
}

/// `DeleteLayerVersion`: functions that have it keep it. One that is not there counts as removed.
pub(super) async fn delete(mut call: Call) -> Result<Answer, Fault> {
    let asked: Asked = call.read()?;
    let layer = named(&call, &asked.layer_name)?;
    let number = number(asked.version_number)?;
    let permit = permit::<to::RemoveLayer>(&call, &layer.name)?;
    call.about(&format!("layer {}:{number}", layer.name));
    let layers = call.app.layers.clone();
    call.carry_out(async move {
        layers.remove(&permit, number).await.map_err(|error| ApiError::from(error).into())
    })
    .await?;
    Ok(Answer::empty().status(StatusCode::NO_CONTENT))
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AskedList {
    layer_name: Option<String>,
    compatible_runtime: Option<String>,
    compatible_architecture: Option<String>,
    marker: Option<String>,
    max_items: Option<usize>,
}

impl AskedList {
    /// Whether a version says that it is for what is asked for.
    fn fits(&self, kept: &Kept) -> bool {
        let says = |asked: &Option<String>, said: &Option<Vec<String>>| match asked {
            None => true,
            Some(asked) => said.iter().flatten().any(|one| one == asked),
        };
        says(&self.compatible_runtime, &kept.runtimes)
            && says(&self.compatible_architecture, &kept.architectures)
    }
}

/// `ListLayerVersions`: the newest first.
pub(super) async fn list_versions(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedList = call.read()?;
    let layer = named(&call, asked.layer_name.as_deref().unwrap_or_default())?;
    let permit = permit::<to::ShowLayer>(&call, &layer.name)?;
    let mut fitting = Vec::new();
    for row in call.app.layers.versions(&permit).into_iter().rev() {
        if asked.fits(&Kept::of(&row)?) {
            fitting.push(row);
        }
    }
    let key = |row: &Arc<LayerRow>| of_number(u32::MAX - row.number);
    let (some, next) = page(fitting, key, asked.marker.as_deref(), asked.max_items)?;
    let some: Result<Vec<_>, _> = some.iter().map(|row| item(&call, row)).collect();
    Answer::part("LayerVersions", &some?, next)
}

/// `ListLayers`: each with its newest version that fits.
pub(super) async fn list(mut call: Call) -> Result<Answer, Fault> {
    let asked: AskedList = call.read()?;
    let permit = call.permit_all::<to::ListLayers>()?;
    let mut newest = BTreeMap::new();
    for row in call.app.layers.list(&permit) {
        if asked.fits(&Kept::of(&row)?) {
            newest.insert(row.layer.name().to_owned(), row);
        }
    }
    let key = |(name, _): &(String, Arc<LayerRow>)| name.clone();
    let all = newest.into_iter().collect();
    let (some, next) = page(all, key, asked.marker.as_deref(), asked.max_items)?;
    let layer = |(name, row): &(String, Arc<LayerRow>)| {
        Ok::<_, Fault>(json!({
            "LayerName": name,
            "LayerArn": call.place.layer_arn(name),
            "LatestMatchingVersion": item(&call, row)?,
        }))
    };
    let layers: Result<Vec<_>, _> = some.iter().map(layer).collect();
    Answer::part("Layers", &layers?, next)
}

/// A layer as a request names it.
#[derive(Debug)]
pub(super) struct Named {
    pub(super) name: LayerName,
    /// Where an ARN names one.
    pub(super) version: Option<u64>,
}

/// Reads a layer's name, or its ARN.
pub(super) fn named(call: &Call, text: &str) -> Result<Named, Fault> {
    let LayerRef { name, version } = LayerRef::read(text, &call.place)?;
    let name: LayerName = name.parse().map_err(ApiError::from)?;
    call.about(&format!("layer {name}"));
    Ok(Named { name, version })
}

/// The number of a version. One that no layer reaches is one that is not there.
pub(super) fn number(asked: i64) -> Result<u32, Fault> {
    if asked < 1 {
        return Err(Fault::invalid_parameter_value("Layer Version Cannot be less than 1."));
    }
    Ok(u32::try_from(asked).unwrap_or(u32::MAX))
}

/// The right to do something with a layer.
pub(super) fn permit<P>(call: &Call, name: &LayerName) -> Result<Permit<P>, Fault>
where
    P: Purpose<Subject = function::WholeLayerName>,
{
    Ok(call.requester.clone().permit(name).map_err(ApiError::from)?)
}

fn not_there() -> Fault {
    Fault::resource_not_found("The resource you requested does not exist.")
}

/// A version of a layer as lists show it.
fn item(call: &Call, row: &LayerRow) -> Result<Value, Fault> {
    let Kept { description, license, runtimes, architectures, .. } = Kept::of(row)?;
    let name = row.layer.name();
    let mut shown = json!({
        "LayerVersionArn": call.place.layer_version_arn(name, row.number.into()),
        "Version": row.number,
        "Description": description,
        "CreatedDate": format!("{}+0000", stamp(row.version.published).trim_end_matches('Z')),
    });
    let optional = [
        ("CompatibleRuntimes", runtimes.map(Value::from)),
        ("CompatibleArchitectures", architectures.map(Value::from)),
        ("LicenseInfo", license.map(Value::from)),
    ];
    for (member, value) in optional {
        if let Some(value) = value {
            shown[member] = value;
        }
    }
    Ok(shown)
}

/// A version of a layer with its content.
fn whole(call: &Call, row: &LayerRow) -> Result<Value, Fault> {
    let kept = Kept::of(row)?;
    let mut shown = item(call, row)?;
    shown["LayerArn"] = call.place.layer_arn(row.layer.name()).into();
    shown["Content"] = json!({
        "Location": call.app.url,
        "CodeSha256": kept.code_sha256,
        "CodeSize": kept.code_size,
    });
    Ok(shown)
}
