#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "base/text.hpp"
#include "doctor/checks.hpp"
#include "http/http_client.hpp"
#include "net/digest.hpp"
#include "s3/aws_credentials.hpp"
#include "support/fake_server.hpp"

namespace dlock::test {
namespace {

TEST_CASE("s3: a section of an AWS file has its settings, without comments and nested ones") {
  const auto found = ini_section(
      "# of all\n[default]\na = 1\n\n[profile  p]\nnot = mine\n[ mine ]\n"
      "aws_access_key_id=AKIA=x \r\n; b = 2\ns3 =\n  max = 3\nno setting\n[other]\na = 4",
      "mine");
  CHECK(found == std::map<std::string, std::string>{{"aws_access_key_id", "AKIA=x"}, {"s3", ""}});
  CHECK(ini_section("[x]\n[", "y").empty());
  CHECK(ini_section("a = 1", "").empty());
}

TEST_CASE("s3: elements of an answer are found by their name, and half of one is none") {
  const std::string xml =
      "<List><Key>a/1</Key><Size>3</Size><Key>a/2</Key><IsTruncated>true</IsTruncated><Key>a";
  CHECK(xml_texts(xml, "Key") == std::vector<std::string>{"a/1", "a/2"});
  CHECK(xml_text(xml, "IsTruncated") == "true");
  CHECK(xml_text(xml, "Code").empty());
}

TEST_CASE("s3: credentials in JSON have a token by either name, and need both keys") {
  const auto found = credentials_in(
      R"({"Version": 1, "AccessKeyId": "A", "SecretAccessKey": "B", "SessionToken": "C",
          "Expiration": "2026-11-30T12:00:00Z"})",
      "x");
  CHECK(found.id + found.secret + found.session_token == "ABC");
  REQUIRE(found.expires);
  CHECK(iso8601(*found.expires) == "2026-11-30T12:00:00.000Z");
  CHECK(credentials_in(R"({"AccessKeyId": "A", "SecretAccessKey": "B", "Token": "D"})", "x")
            .session_token == "D");
  for (const char* bad : {"", "[]", "{", R"({"AccessKeyId": "A"})",
                          R"({"AccessKeyId": 1, "SecretAccessKey": "B"})"}) {
    CAPTURE(bad);
    CHECK_THROWS_AS(credentials_in(bad, "x"), Error);
  }
}

/// How often a role is asked for when credentials are needed twice that end after `left`.
std::size_t requests_for_two(milliseconds left) {
  FakeServer role({say_http(R"({"AccessKeyId": "A", "SecretAccessKey": "B", "Expiration": ")" +
                            iso8601(wall_now() + left) + "\"}")},
                  true);
  for (const char* name : {"AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE"}) {
    unsetenv(name);
  }
  const std::string url = "http://127.0.0.1:" + std::to_string(role.address().port) + "/role";
  setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", url.c_str(), 1);
  setenv("AWS_CONFIG_FILE", "/dev/null", 1);
  setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null", 1);
  AwsCredentialChain chain("us-east-1");
  for (int i = 0; i < 2; ++i) CHECK(chain.current(short_call()).id == "A");
  return role.requests().size();
}

TEST_CASE("s3: credentials that end within five minutes are asked for anew, others are kept") {
  CHECK(requests_for_two(std::chrono::minutes(6)) == 1);
  CHECK(requests_for_two(std::chrono::minutes(4)) == 2);
}

TEST_CASE("s3: doctor warns of a bucket that keeps every state, and names the rule against it") {
  S3Facts facts;
  facts.folder = "ci";
  facts.versioning = "Enabled";
  const Findings findings = check_s3(facts);
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [](const Finding& each) { return each.check == "versions"; });
  REQUIRE(found != findings.end());
  CHECK(found->level == Level::warning);
  CHECK(found->advice.starts_with("a lifecycle rule for ci/: NoncurrentVersionExpiration"));
}

TEST_CASE("s3: the date of an answer is its second, and another form is none") {
  HttpCall call;
  CHECK(!call.date());
  call.answer_fields["date"] = "Sun, 06 Nov 1994 08:49:37 GMT";
  CHECK(call.date() == std::chrono::seconds(784111777));
  call.answer_fields["date"] = "1994-11-06T08:49:37Z";
  CHECK(!call.date());
}

TEST_CASE("s3: the SHA-256 of a body is the one of FIPS 180-2") {
  CHECK(sha256_hex("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace
}  // namespace dlock::test
