//! What the description of the API says of many routes alike, so that none is forgotten: who may, what names are, and how
//! it is told that something is refused.

use axum::http::Method;
use utoipa::openapi::path::{Operation, Parameter, ParameterIn};
use utoipa::openapi::request_body::RequestBody;
use utoipa::openapi::schema::{KnownFormat, SchemaFormat, Type};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    Components, ContentBuilder, ObjectBuilder, OpenApi, PathItem, Ref, RefOr, Required, Response,
    Schema,
};

use super::actions;

/// The scheme's name.
const TOKEN: &str = "token";

/// Texts that stand in paths, with the expression that all good ones match.
const NAMES: [(&str, &str, usize); 4] = [
    ("name", "^[A-Za-z0-9][A-Za-z0-9_-]*$", function::MAX_NAME),
    ("key", "^[A-Za-z_][A-Za-z0-9_]*$", platform::secrets::KEY_BYTES),
    ("token", "^[A-Za-z0-9][A-Za-z0-9_-]*$", function::MAX_NAME),
    // Not digits alone.
    ("alias", "^[A-Za-z0-9_-]*[A-Za-z_-][A-Za-z0-9_-]*$", function::MAX_ALIAS),
];

/// Takes a body or none: a call without one has an empty event, and a secret may be empty.
const OPTIONAL: [&str; 2] = ["/run/{name}", "/v1/functions/{name}/secrets/{key}"];

/// Completes the description of each route.
pub(super) fn complete(api: &mut OpenApi) {
    let bearer = Http::new(HttpAuthScheme::Bearer);
    let components = api.components.get_or_insert_with(Components::new);
    components.add_security_scheme(TOKEN, SecurityScheme::Http(bearer));
    for (path, item) in &mut api.paths.paths {
        for (method, operation) in operations(item) {
            if let Some(body) = &mut operation.request_body {
                say_what_is_binary(body);
                if OPTIONAL.contains(&path.as_str()) {
                    body.required = Some(Required::False);
                }
            }
            let action = actions::of(&method, path);
            for parameter in operation.parameters.iter_mut().flatten() {
                say_pattern(parameter);
            }
            refuses(operation, "400", "a name, the query or a header is not valid");
            if let Some(action) = action {
                // OpenAPI 3.1 lets a bearer token's requirement name roles: a token has scopes.
                let required = [action.scope().as_str()];
                operation.security = Some(vec![SecurityRequirement::new(TOKEN, required)]);
                refuses(operation, "401", "there is no token, or it is not valid");
                refuses(operation, "403", "the token does not allow this");
            }
        }
    }
}

/// What is neither text nor JSON is bytes, and not a list of their numbers.
fn say_what_is_binary(body: &mut RequestBody) {
    for (kind, content) in &mut body.content {
        if !kind.starts_with("text/") && !kind.ends_with("json") {
            let binary = SchemaFormat::KnownFormat(KnownFormat::Binary);
            let bytes = ObjectBuilder::new().schema_type(Type::String).format(Some(binary));
            content.schema = Some(bytes.build().into());
        }
    }
}

pub(super) fn operations(item: &mut PathItem) -> impl Iterator<Item = (Method, &mut Operation)> {
    let PathItem { get, put, post, delete, .. } = item;
    let all =
        [(Method::GET, get), (Method::PUT, put), (Method::POST, post), (Method::DELETE, delete)];
    all.into_iter().filter_map(|(method, operation)| Some((method, operation.as_mut()?)))
}

/// Adds an answer, unless the route describes it itself.
fn refuses(operation: &mut Operation, status: &str, when: &str) {
    let body = ContentBuilder::new().schema(Some(Ref::from_schema_name("ErrorBody"))).build();
    let mut response = Response::new(when);
    response.content.insert("application/json".to_owned(), body);
    let all = &mut operation.responses.responses;
    all.entry(status.to_owned()).or_insert_with(|| RefOr::T(response));
}

fn say_pattern(parameter: &mut Parameter) {
    let rule = NAMES.iter().find(|(name, ..)| *name == parameter.name);
    let Some((_, pattern, longest)) = rule else { return };
    if parameter.parameter_in == ParameterIn::Path
        && let Some(RefOr::T(Schema::Object(text))) = &mut parameter.schema
    {
        text.pattern = Some((*pattern).to_owned());
        (text.min_length, text.max_length) = (Some(1), Some(*longest));
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn each_route_says_whether_it_takes_a_token_and_how_it_refuses() {
        let described = serde_json::to_value(crate::native::openapi()).unwrap();
        for (path, methods) in described["paths"].as_object().unwrap() {
            for (method, route) in methods.as_object().unwrap() {
                let open = path == "/healthz";
                assert_eq!(route["security"].is_array(), !open, "{method} {path}");
                assert_eq!(route["responses"]["401"].is_object(), !open, "{method} {path}");
                assert!(route["responses"]["400"].is_object(), "{method} {path}");
            }
        }
        let body = |path: &str, method: &str| &described["paths"][path][method]["requestBody"];
        let (event, bundle) = (body("/run/{name}", "post"), body("/v1/functions/{name}", "put"));
        assert_eq!((&event["required"], &bundle["required"]), (&false.into(), &true.into()));
        for (body, kind) in [
            (event, "application/octet-stream"),
            (bundle, "application/zip"),
            (bundle, "application/x-tar"),
            (bundle, "application/gzip"),
        ] {
            let schema = &body["content"][kind]["schema"];
            assert_eq!(
                *schema,
                serde_json::json!({"type": "string", "format": "binary"}),
                "{kind}"
            );
        }
        assert!(bundle["content"]["text/x-python"]["schema"]["format"].is_null());
        let name = &described["paths"]["/run/{name}"]["post"]["parameters"][0]["schema"];
        assert_eq!(name["maxLength"], 64);
        assert_eq!(described["components"]["securitySchemes"]["token"]["scheme"], "bearer");
    }
}
