//! Writes a JSON object that ends with a long list, part by part, so that no part keeps a core for long.

use axum::body::Bytes;
use serde::Serialize;

/// `head` is the object with an empty list as its last field. `parts` are the rows of that list.
pub fn json_list_chunks<Head: Serialize, Row: Serialize, Parts: Iterator<Item = Vec<Row>>>(
    head: &Head,
    parts: Parts,
) -> impl Iterator<Item = Bytes> + use<Head, Row, Parts> {
    const END: &[u8] = b"]}";

    let mut opening = to_json(head);
    debug_assert!(opening.ends_with(b"[]}"), "the list is the last field");
    opening.truncate(opening.len() - END.len());

    let mut is_first = true;
    let rows = parts.filter(|part| !part.is_empty()).map(move |part| {
        let mut json = to_json(&part);
        json.pop();
        // Between two parts the bracket becomes a comma.
        json[0] = b',';
        Bytes::from(json).split_off(usize::from(std::mem::replace(&mut is_first, false)))
    });
    std::iter::once(opening.into()).chain(rows).chain(std::iter::once(Bytes::from_static(END)))
}

fn to_json(body: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(body).expect("our own types serialize")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Serialize)]
    struct Head {
        total: usize,
        data: [u8; 0],
    }

    #[test]
    fn parts_join_to_one_object() {
        let whole = |parts: Vec<Vec<u32>>| {
            let chunks: Vec<Bytes> = json_list_chunks(&Head { total: 4, data: [] }, parts.into_iter()).collect();
            String::from_utf8(chunks.concat()).unwrap()
        };
        assert_eq!(whole(vec![vec![1, 2], vec![], vec![3], vec![4]]), r#"{"total":4,"data":[1,2,3,4]}"#);
        assert_eq!(whole(vec![]), r#"{"total":4,"data":[]}"#);
    }
}
