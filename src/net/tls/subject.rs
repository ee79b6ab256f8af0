//! The subject of a certificate as ZooKeeper's X.509 identities have it: what `X500Principal.getName()` of Java gives.
//!
//! Pure. The form is RFC 2253 as `sun.security.x509` has it. Attribute types without a name in the RFC are numbers there, with their
//! values as hexadecimal digits of the DER.

use std::fmt::Write as _;

use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::x509::{AttributeTypeAndValue, X509Name};

/// Attribute types that RFC 2253 names.
const NAMES: [(&str, &str); 9] = [
    ("2.5.4.3", "CN"),
    ("2.5.4.6", "C"),
    ("2.5.4.7", "L"),
    ("2.5.4.8", "ST"),
    ("2.5.4.9", "STREET"),
    ("2.5.4.10", "O"),
    ("2.5.4.11", "OU"),
    ("0.9.2342.19200300.100.1.25", "DC"),
    ("0.9.2342.19200300.100.1.1", "UID"),
];
/// Tags of the strings that Java shows as text: UTF8, Printable, T61, IA5, General and BMP.
const TEXTS: [u32; 6] = [0x0c, 0x13, 0x14, 0x16, 0x1b, 0x1e];
/// Characters that get a backslash.
const ESCAPED: &str = ",=+<>#;\"\\";

/// The subject; `None` if the certificate cannot be parsed.
pub(crate) fn subject(certificate: &[u8]) -> Option<String> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(shown(certificate.subject()))
}

fn shown(name: &X509Name<'_>) -> String {
    let names: Vec<_> = name.iter_rdn().collect();
    let mut text = String::new();
    for (at, name) in names.iter().rev().enumerate() {
        if at > 0 {
            text.push(',');
        }
        for (at, attribute) in name.iter().enumerate() {
            if at > 0 {
                text.push('+');
            }
            push_attribute(&mut text, attribute);
        }
    }
    text
}

fn push_attribute(text: &mut String, attribute: &AttributeTypeAndValue<'_>) {
    let oid = attribute.attr_type().to_id_string();
    let name = NAMES.iter().find(|(number, _)| *number == oid).map(|(_, name)| *name);
    let value = attribute.attr_value();
    text.push_str(name.unwrap_or(&oid));
    text.push('=');
    if name.is_none() || !TEXTS.contains(&value.tag().0) {
        return push_hex(text, value.tag().0, value.data);
    }
    let plain = String::from_utf8_lossy(value.data);
    let is_blank = |c: char| matches!(c, ' ' | '\r');
    let lead = plain.chars().take_while(|c| is_blank(*c)).count();
    let tail = plain.chars().count() - plain.chars().rev().take_while(|c| is_blank(*c)).count();
    for (at, c) in plain.chars().enumerate() {
        if c == '\0' {
            text.push_str("\\00");
            continue;
        }
        if ESCAPED.contains(c) || at < lead || at >= tail {
            text.push('\\');
        }
        text.push(c);
    }
}

/// `#` and the digits of the whole DER value.
fn push_hex(text: &mut String, tag: u32, data: &[u8]) {
    let mut der = vec![u8::try_from(tag).unwrap_or_default()];
    let length = data.len().to_be_bytes();
    match data.len() {
        short @ ..0x80 => der.push(u8::try_from(short).unwrap_or_default()),
        _ => {
            let significant = &length[length.iter().take_while(|byte| **byte == 0).count()..];
            der.push(0x80 | u8::try_from(significant.len()).unwrap_or_default());
            der.extend_from_slice(significant);
        }
    }
    der.extend_from_slice(data);
    text.push('#');
    for byte in der {
        let _ = write!(text, "{byte:02x}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names in DER, and the results of `new X500Principal(bytes).getName()` of OpenJDK 17.
    #[test]
    fn subjects_as_java_names_them() {
        let long = format!("3081d63181d33081d006032a03040c81c8{}", "7a".repeat(200));
        let rows: &[(&str, &str)] = &[
            ("3000", ""),
            ("3010310e300c06035504031305616c696365", "CN=alice"),
            (
                "302f310b30090603550406130244453110300e060355040a0c074578616d706c65310e300c06035504030c05616c696365",
                "CN=alice,O=Example,C=DE",
            ),
            (
                "304331133011060a0992268993f22c64011916036f726731173015060a0992268993f22c64011916076578616d706c6531133011060a0992268993f22c6401010c03626f62",
                "UID=bob,DC=example,DC=org",
            ),
            ("3010310e300c06035504030c05612c622b63", "CN=a\\,b\\+c"),
            ("30163114301206035504030c0b71756f2274655c6261636b", "CN=quo\\\"te\\\\back"),
            ("3011310f300d06035504030c063c613e3b3d23", "CN=\\<a\\>\\;\\=\\#"),
            ("3010310e300c06035504030c05236c656164", "CN=\\#lead"),
            ("3010310e300c06035504030c05206c656164", "CN=\\ lead"),
            ("3011310f300d06035504030c067461696c2020", "CN=tail\\ \\ "),
            ("300e310c300a06035504030c03202020", "CN=\\ \\ \\ "),
            ("300b3109300706035504030c00", "CN="),
            ("300c310a300806035504030c0120", "CN=\\ "),
            ("30123110300e06035504030c076d696420646c65", "CN=mid dle"),
            ("301c311a301806035504030c114dc3bc6c6c657220c39c6ec3af636f6465", "CN=Müller Ünïcode"),
            ("30143112301006035504030c09e697a5e69cace8aa9e", "CN=日本語"),
            ("300f310d300b06035504030c04f09f9880", "CN=😀"),
            ("3011310f300d060355040314064dfc6c6c6572", "CN=M�ller"),
            ("300f310d300b06035504031e0400680069", "CN=\\00h\\00i"),
            ("30133111300f06035504031c080000006800000069", "CN=#1c080000006800000069"),
            (
                "30223114301206092a864886f70d01090116056140622e63310a300806035504030c0178",
                "CN=x,1.2.840.113549.1.9.1=#16056140622e63",
            ),
            ("300f310d300b0603550405130430313233", "2.5.4.5=#130430313233"),
            (
                "3025310b3009060355040c0c024472310a300806035504040c0159310a3008060355042e130171",
                "2.5.4.46=#130171,2.5.4.4=#0c0159,2.5.4.12=#0c024472",
            ),
            ("3011310f300d06032a03040c06637573746f6d", "1.2.3.4=#0c06637573746f6d"),
            (&long, &format!("1.2.3.4=#0c81c8{}", "7a".repeat(200))),
            ("30163114300806035504030c01613008060355040b0c0162", "CN=a+OU=b"),
            (
                "303331253008060355040b0c0162300806035504030c0161300f060a0992268993f22c6401010c0137310a3008060355040a0c017a",
                "O=z,OU=b+CN=a+UID=7",
            ),
            (
                "30333113301106035504090c0a31204d61696e2053742e310e300c06035504070c054bc3b66c6e310c300a06035504080c034e5257",
                "ST=NRW,L=Köln,STREET=1 Main St.",
            ),
            ("3011310f300d06035504030c066e756c00696e", "CN=nul\\00in"),
            ("30123110300e06035504030c07746162096e6c0a", "CN=tab\tnl\n"),
            ("300f310d300b06035504030c040d63720d", "CN=\\\rcr\\\r"),
            ("300d310b3009060355040304023132", "CN=#04023132"),
            ("30133111300f06035504030c08626164ffc3757466", "CN=bad��utf"),
            ("30123110300e06035504031b0767656e6572616c", "CN=general"),
            ("301631143012060355040b0c0b612f623a633f6427286529", "OU=a/b:c?d'(e)"),
            ("30183116301406035504030c0d737020227122205c20656e6420", "CN=sp \\\"q\\\" \\\\ end\\ "),
        ];
        for (der, expect) in rows {
            let byte = |at: usize| u8::from_str_radix(&der[at..at + 2], 16).expect("hexadecimal digits");
            let der: Vec<u8> = (0..der.len()).step_by(2).map(byte).collect();
            let (_, name) = X509Name::from_der(&der).expect("a name");
            assert_eq!(shown(&name), *expect);
        }
    }
}
