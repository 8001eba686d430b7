#include "support/tls_files.hpp"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <utility>
#include <vector>

#include "base/error.hpp"
#include "support/files.hpp"
#include "support/process.hpp"

namespace dlock::test {
namespace {

void openssl(std::vector<std::string> words) {
  words.insert(words.begin(), "openssl");
  const Result result = run(words, {.merge = true});
  if (result.exit_code != 0) throw Error(ErrorKind::bug, "openssl " + words[1] + ": " + result.out);
}

/// The defaults of openssl depend on its build; this config adds nothing.
constexpr const char* bare_config = "[req]\nprompt = no\ndistinguished_name = dn\n[dn]\n";

/// The config of `openssl ca` for a CA that keeps no records.
constexpr const char* ca_config =
    "[ca]\ndefault_ca = own\n[own]\nnew_certs_dir = $dir\ndatabase = $dir/index\n"
    "rand_serial = yes\ndefault_md = sha256\npolicy = any\n[any]\ncommonName = supplied\n";

/// The format of `openssl ca`: 20260102030405Z.
std::string days_from_now(int days) {
  const std::time_t time = std::time(nullptr) + days * 86'400;
  std::tm parts{};
  gmtime_r(&time, &parts);
  char text[32];
  std::strftime(text, sizeof text, "%Y%m%d%H%M%SZ", &parts);
  return text;
}

}  // namespace

TestCa::TestCa(const std::string& name) : own_() {
  write_file(dir_ / "openssl.cnf", bare_config);
  own_ = make_root(name, "");
}

Certificate TestCa::make_root(const std::string& name, const std::string& alt_names) const {
  const std::string file = dir_ / (alt_names.empty() ? "ca" : name);
  const Certificate made{file + ".pem", file + ".key"};
  std::vector<std::string> words{"req",
                                 "-config",
                                 dir_ / "openssl.cnf",
                                 "-x509",
                                 "-newkey",
                                 "ec",
                                 "-pkeyopt",
                                 "ec_paramgen_curve:P-256",
                                 "-nodes",
                                 "-days",
                                 "2",
                                 "-keyout",
                                 made.key,
                                 "-out",
                                 made.file,
                                 "-subj",
                                 "/CN=" + name};
  words.insert(words.end(), {"-addext", "basicConstraints=critical,CA:" +
                                            std::string(alt_names.empty() ? "TRUE" : "FALSE")});
  if (!alt_names.empty()) words.insert(words.end(), {"-addext", "subjectAltName=" + alt_names});
  openssl(words);
  return made;
}

Certificate TestCa::issue(const std::string& name, const std::string& alt_names, int days) const {
  const Certificate made{dir_ / (name + ".pem"), dir_ / (name + ".key")};
  const std::string request = dir_ / (name + ".csr");
  const std::string extensions = dir_ / (name + ".ext");
  openssl({"req", "-config", dir_ / "openssl.cnf", "-newkey", "ec", "-pkeyopt",
           "ec_paramgen_curve:P-256", "-nodes", "-keyout", made.key, "-out", request, "-subj",
           "/CN=" + name});
  write_file(extensions, "basicConstraints=CA:FALSE\nsubjectAltName=" + alt_names + "\n");
  // `openssl x509` cannot begin in the past nor, since 3.4, end before it begins.
  write_file(dir_ / "index", "");
  write_file(dir_ / "ca.cnf", "dir = " + dir_.path() + "\n" + ca_config);
  openssl({"ca", "-batch", "-notext", "-config", dir_ / "ca.cnf", "-in", request, "-cert",
           own_.file, "-keyfile", own_.key, "-startdate", days_from_now(std::min(days - 1, 0)),
           "-enddate", days_from_now(days), "-extfile", extensions, "-out", made.file});
  return made;
}

Certificate TestCa::self_signed(const std::string& name) const {
  return make_root(name, loopback_names);
}

std::string TestCa::hashed_directory() const {
  const std::string path = dir_ / "hashed";
  std::filesystem::create_directory(path);
  std::filesystem::copy(own_.file, path);
  openssl({"rehash", path});
  return path;
}

namespace {

RedisOptions with_tls(RedisOptions options, const TestCa& ca, const Certificate& own) {
  options.tls = true;
  options.config.insert(options.config.end(),
                        {"tls-cert-file " + own.file, "tls-key-file " + own.key,
                         "tls-ca-cert-file " + ca.file(), "tls-auth-clients no"});
  return options;
}

void must(const Reply& reply) {
  if (reply.text != "OK") throw Error(ErrorKind::bug, reply.text);
}

}  // namespace

TlsRedis::TlsRedis(RedisOptions options)
    : own(ca.issue("server")), server(with_tls(std::move(options), ca, own)) {}

Endpoint TlsRedis::endpoint(int port) const {
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  endpoint.port = port == 0 ? server.tls_port() : port;
  endpoint.tls.emplace();
  endpoint.tls->ca = ca.file();
  return endpoint;
}

ProcessOptions TlsRedis::with_server(ProcessOptions options) const {
  options.env.emplace("DLOCK_SERVER", url());
  options.env.emplace("DLOCK_TLS_CA", ca.file());
  return options;
}

void TlsRedis::show(const Certificate& certificate) const {
  must(server.command(
      {"CONFIG", "SET", "tls-cert-file", certificate.file, "tls-key-file", certificate.key}));
}

void TlsRedis::set(const std::string& name, const std::string& value) const {
  must(server.command({"CONFIG", "SET", name, value}));
}

}  // namespace dlock::test
