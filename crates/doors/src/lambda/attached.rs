//! The layers that a function is to have.

use function::{AttachedLayer, MAX_LAYERS};
use lambda_api::Fault;
use lambda_api::arn::LayerRef;
use platform::access::to;
use store::LayerVersion;

use super::call::Call;
use super::layers::{self, Kept};

/// The layers of these ARNs, in their order. An ARN names a layer of the caller's own tenant: what another has of that name is
/// not looked at.
///
/// # Errors
/// When there are too many, two of one layer, or one that is not there, or that its caller may not see.
pub(super) fn find(call: &Call, arns: &[String]) -> Result<Vec<AttachedLayer>, Fault> {
    if arns.len() > MAX_LAYERS {
        return Err(Fault::invalid_parameter_value(format!(
            "Cannot reference more than {MAX_LAYERS} layers."
        )));
    }
    let mut found: Vec<(LayerRef, AttachedLayer)> = Vec::new();
    for arn in arns {
        let layer = LayerRef::read(arn, &call.place)?;
        if let Some((_, other)) = found.iter().find(|(other, _)| other.name == layer.name) {
            return Err(Fault::invalid_parameter_value(format!(
                "Two different versions of the same layer are not allowed to be referenced in the same function. {} and {arn} are versions of the same layer.",
                other.arn
            )));
        }
        let attached = attached(call, arn, &layer)?;
        found.push((layer, attached));
    }
    Ok(found.into_iter().map(|(_, attached)| attached).collect())
}

fn attached(call: &Call, arn: &str, layer: &LayerRef) -> Result<AttachedLayer, Fault> {
    let missing = || Fault::invalid_parameter_value(format!("Layer version {arn} does not exist."));
    let name = layer.name.parse().map_err(|_| missing())?;
    let number = layer.version.and_then(|number| u32::try_from(number).ok());
    let permit = layers::permit::<to::ShowLayer>(call, &name)?;
    let row = number.and_then(|number| call.app.layers.show(&permit, number));
    let row = row.ok_or_else(missing)?;
    let code_size = Kept::of(&row)?.code_size;
    // A number may be written in more than one way.
    let arn = call.place.layer_version_arn(row.layer.name(), row.number.into());
    let LayerVersion { bytes, bundle, modules, uses_runtime_set, .. } = row.version.clone();
    Ok(AttachedLayer { arn, code_size, bytes, bundle, modules, uses_runtime_set })
}
