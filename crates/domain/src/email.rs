//! Syntax check of email addresses. Nothing is sent to verify them.

/// The longest address that SMTP allows.
pub const MAX_EMAIL_LENGTH: usize = 254;

/// Whether this is an ordinary address: a dot-atom, `@`, and a domain of at least two labels.
pub fn is_valid_email(text: &str) -> bool {
    let Some((local, domain)) = text.rsplit_once('@') else { return false };
    text.len() <= MAX_EMAIL_LENGTH && is_valid_local_part(local) && is_valid_domain(domain)
}

fn is_valid_local_part(local: &str) -> bool {
    let is_atom = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+/=?^_`{|}~-".contains(&byte))
    };
    local.len() <= 64 && local.split('.').all(is_atom)
}

fn is_valid_domain(domain: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };

    let tld_has_letter =
        domain.rsplit('.').next().is_some_and(|tld| tld.bytes().any(|byte| byte.is_ascii_alphabetic()));
    domain.contains('.') && domain.split('.').all(is_label) && tld_has_letter
}

#[cfg(test)]
mod tests {
    use super::is_valid_email;

    #[test]
    fn only_valid_emails_are_accepted() {
        let max_length = format!("{}@{}.{}.{}.com", "a".repeat(64), "b".repeat(63), "c".repeat(63), "d".repeat(57));
        for text in ["ana@example.com", "a.b+c@sub.example.com.br", max_length.as_str()] {
            assert!(is_valid_email(text), "{text}");
        }

        let too_long = format!("{}@{}.{}.{}.com", "a".repeat(64), "b".repeat(63), "c".repeat(63), "d".repeat(58));
        for text in [
            "",
            "nope",
            "@example.com",
            "a@",
            "a@b",
            "a@b.1",
            "a b@example.com",
            "a@exa mple.com",
            ".a@example.com",
            "a..b@example.com",
            "a@-b.com",
            "a@example.com\r\n",
            "a@b@example.com",
            too_long.as_str(),
        ] {
            assert!(!is_valid_email(text), "{text:?}");
        }
    }
}
