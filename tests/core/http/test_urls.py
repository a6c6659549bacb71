from ipaddress import ip_address

import pytest

from tools_app.core.http.urls import InvalidUrl, Url, has_parent_segments, parse_url, stays_under

BASE = parse_url("https://api.example.com/v1")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://api.example.com", Url("https", "api.example.com", 443)),
        ("HTTP://API.Example.COM:8080/a/b?c=d#e", Url("http", "api.example.com", 8080, "/a/b", "c=d")),
        ("HTTPS://api.example.com", Url("https", "api.example.com", 443)),
        ("http://api.example.com.:/", Url("http", "api.example.com", 80)),
        ("http://127.0.0.1/x", Url("http", "127.0.0.1", 80, "/x")),
        ("http://[::1]:81/x", Url("http", "::1", 81, "/x")),
        ("http://[0:0:0:0:0:ffff:10.0.0.1]/", Url("http", str(ip_address("::ffff:10.0.0.1")), 80)),
        ("http://xn--bcher-kva.example/", Url("http", "xn--bcher-kva.example", 80)),
        ("http://api.example.com:1/", Url("http", "api.example.com", 1)),
        (f"http://{'a.' * 125}com/", Url("http", f"{'a.' * 125}com", 80)),
        ("http://api.example.com:65535/", Url("http", "api.example.com", 65535)),
    ],
)
def test_a_url_is_read_into_its_parts(text: str, expected: Url) -> None:
    assert parse_url(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "api.example.com",
        "//api.example.com",
        "ftp://api.example.com",
        "file:///etc/passwd",
        "http://",
        "http:///path",
        "http://user@api.example.com",
        "http://user:password@api.example.com",
        "http://api.example.com@evil.example",
        "http://api.example.com\\@evil.example",
        "http://api.example.com\\.evil.example",
        "http://api.example.com:0",
        "http://api.example.com:65536",
        "http://api.example.com:http",
        "http://api example.com",
        "http://api.example.com/\r\nHost: evil",
        "http://api.example.com/\x00",
        " http://api.example.com",
        "http://api..example.com",
        "http://.example.com",
        "http://-api.example.com",
        "http://api-.example.com",
        f"http://{'a' * 64}.example.com",
        f"http://{'a.' * 125}exam",
        "http://127.0.0.1%2f.example.com",
        "http://bücher.example",
        "http://\uff11\uff12\uff17.0.0.1",  # full-width digits
        "http://127\u30020\u30020\u30021",  # ideographic full stops
        "http://[::1",
        "http://[::1]evil.example",
        "http://[fe80::1%25eth0]/",
        "http://[fe80::1%eth0]/",
        "http://[v1.x]/",
        "http://[127.0.0.1]/",
    ],
)
def test_what_two_readers_could_disagree_about_is_no_url(text: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_url(text)


@pytest.mark.parametrize(
    "host",
    ["2130706433", "017700000001", "0x7f000001", "127.1", "127.0.1", "0177.0.0.1", "0x7f.0.0.1", "127.0.0.0x1",
     "127.0.0.01", "256.0.0.1", "1.2.3.4.5", "foo.1", "foo.0x1"],
)  # fmt: skip
def test_an_ipv4_address_has_one_spelling(host: str) -> None:
    with pytest.raises(InvalidUrl, match="dotted decimal"):
        parse_url(f"http://{host}/")


@pytest.mark.parametrize(
    ("reference", "expected"),
    [
        ("/x", "https://api.example.com/x"),
        ("x?y=z", "https://api.example.com/x?y=z"),
        ("//other.example/x", "https://other.example/x"),
        ("http://other.example:81", "http://other.example:81/"),
    ],
)
def test_a_reference_is_joined_to_the_url_that_it_was_found_in(reference: str, expected: str) -> None:
    assert str(BASE.joined(reference)) == expected


@pytest.mark.parametrize(
    "reference", ["", "ftp://x.example/", "javascript:alert(1)", "http://u@x.example/", "http://[/", "/\r\nx: y", "/ü"]
)
def test_a_reference_that_is_no_clean_http_url_is_refused(reference: str) -> None:
    with pytest.raises(InvalidUrl):
        BASE.joined(reference)


def test_the_authority_holds_brackets_and_a_port_only_where_needed() -> None:
    assert parse_url("https://api.example.com:443/").authority == "api.example.com"
    assert parse_url("https://api.example.com:80/").authority == "api.example.com:80"
    assert parse_url("http://[::1]:81/").authority == "[::1]:81"


@pytest.mark.parametrize("path", ["/v1", "/v1/", "/v1/x", "/v1/x%2Fy", "/v1/...", "/v1/x..y"])
def test_a_path_below_the_base_stays_under_it(path: str) -> None:
    assert stays_under(Url("https", "api.example.com", 443, path), BASE)


@pytest.mark.parametrize(
    "url",
    [
        Url("http", "api.example.com", 443, "/v1/x"),
        Url("https", "evil.example", 443, "/v1/x"),
        Url("https", "api.example.com", 8443, "/v1/x"),
        Url("https", "api.example.com", 443, "/v10/x"),
        Url("https", "api.example.com", 443, "/"),
        Url("https", "api.example.com", 443, "//v1/x"),
        Url("https", "api.example.com", 443, "/v1/../admin"),
        Url("https", "api.example.com", 443, "/v1/%2e%2e/admin"),
    ],
)
def test_another_origin_or_path_does_not_stay_under_the_base(url: Url) -> None:
    assert not stays_under(url, BASE)


@pytest.mark.parametrize(
    "path",
    ["..", ".", "a/..", "a/./b", "%2e%2e", ".%2E/", "%252e%252e", "a%2f..%2fb", "a\\..\\b", "a%5c..", "..;x=y", "../",
     " ..", "..%20", "%25252e%25252e"],
)  # fmt: skip
def test_a_path_that_some_server_would_climb_is_found(path: str) -> None:
    assert has_parent_segments(path)


@pytest.mark.parametrize("path", ["", "a", "a.b", "...", "a..b", "..a", "a/b", "%zz", "1.0"])
def test_dots_inside_a_name_do_not_climb(path: str) -> None:
    assert not has_parent_segments(path)
