#include "support/tls_files.hpp"

#include <filesystem>
#include <vector>

#include "base/error.hpp"
#include "support/files.hpp"
#include "support/process.hpp"

namespace dlock::test {
namespace {

void openssl(std::vector<std::string> words) {
  words.insert(words.begin(), "openssl");
  ProcessOptions options;
  options.merge = true;
  const Result result = run(words, options);
  if (result.exit_code != 0) throw Error(ErrorKind::bug, "openssl " + words[1] + ": " + result.out);
}

/// What openssl adds of its own depends on where it was built: this adds nothing.
constexpr const char* bare_config = "[req]\nprompt = no\ndistinguished_name = dn\n[dn]\n";

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
  openssl({"x509", "-req", "-in", request, "-CA", own_.file, "-CAkey", own_.key, "-CAcreateserial",
           "-days", std::to_string(days), "-extfile", extensions, "-out", made.file});
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

}  // namespace dlock::test
