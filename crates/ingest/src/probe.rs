//! Checks whether an upstream responds, without a database.

use crate::IngestError;
use crate::fetch::{
    FetchRequest, ResponseVerdict, RetryPolicy, UpstreamAddresses, UpstreamClient, UpstreamResponse, build_http_client,
};
use crate::source::Upstream;

/// Sends one cheap request.
pub async fn probe(upstream: Upstream, addresses: &UpstreamAddresses, contact: &str) -> Result<(), IngestError> {
    let (address, path) = match upstream {
        Upstream::Sgs => (&addresses.sgs, "/dados/serie/bcdata.sgs.432/dados/ultimos/1?formato=json"),
        Upstream::Ptax => (&addresses.ptax, "/olinda/servico/PTAX/versao/v1/odata/Moedas?$top=1&$format=json"),
        Upstream::Cvm => (&addresses.cvm, "/dados/CIA_ABERTA/DOC/IPE/DADOS/"),
    };
    let client = build_http_client(contact).map_err(|error| IngestError::HttpClient(error.to_string()))?;
    let client = UpstreamClient::new(client, address, RetryPolicy::SINGLE_ATTEMPT);

    let judge_response = |response: &UpstreamResponse| match response.status {
        200 => ResponseVerdict::Accept,
        status => ResponseVerdict::GiveUp(format!("answers with status {status}")),
    };
    client.get_with_retries(&FetchRequest { path, ..FetchRequest::default() }, judge_response).await?;
    Ok(())
}
