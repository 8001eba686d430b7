#include "net/tls.hpp"

#include <dirent.h>
#include <fnmatch.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "base/error.hpp"
#include "base/process.hpp"
#include "base/text.hpp"

namespace dlock {
namespace {

[[noreturn]] void refuse(const char* option, const std::string& path, const std::string& why) {
  throw Error(ErrorKind::usage, std::string(option) + ": " + escaped(path) + " " + why);
}

std::string last_reason() {
  const char* reason = openssl().ERR_reason_error_string(openssl().ERR_peek_error());
  return std::string("cannot be read: ") +
         (reason == nullptr ? "it is damaged, or of a kind that OpenSSL does not know" : reason);
}

/// The text of a PEM file (RFC 7468), which must have a block of this kind.
std::string pem_in(const char* option, const std::string& path, const std::string& kind) {
  struct stat is {};
  if (stat(path.c_str(), &is) != 0) {
    refuse(option, path, std::string("cannot be read: ") + std::strerror(errno));
  }
  if (!S_ISREG(is.st_mode)) refuse(option, path, "is not a file");
  std::string text = file_text(path);
  if (text.empty()) refuse(option, path, is.st_size == 0 ? "is empty" : "cannot be read");
  if (text.find(kind + "-----") == std::string::npos) {
    refuse(option, path, "holds no " + kind + " in PEM");
  }
  return text;
}

/// Whether the name is like `d41d8cd9.0`, as openssl rehash makes it.
bool is_hashed_name(const char* name) {
  constexpr const char* pattern =
      "[[:xdigit:]][[:xdigit:]][[:xdigit:]][[:xdigit:]]"
      "[[:xdigit:]][[:xdigit:]][[:xdigit:]][[:xdigit:]].[0-9]*";
  return fnmatch(pattern, name, 0) == 0;
}

bool has_hashed_certificates(const std::string& path) {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir(path.c_str()), &closedir);
  while (folder != nullptr) {
    const dirent* const entry = readdir(folder.get());
    if (entry == nullptr) return false;
    if (is_hashed_name(entry->d_name)) return true;
  }
  return false;
}

bool is_readable(const char* path) { return access(path, R_OK) == 0; }

/// An OpenSSL that is linked into dlock looks for certificates where its distribution keeps them.
/// Other distributions keep them here (https://go.dev/src/crypto/x509/root_linux.go).
void trust_other_distribution(SSL_CTX* context) {
  for (const char* bundle :
       {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
        "/etc/ssl/ca-bundle.pem", "/etc/pki/tls/cacert.pem",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (is_readable(bundle) && openssl().SSL_CTX_load_verify_file(context, bundle) == 1) return;
  }
}

/// Trusts the system's hashed directory, where OpenSSL reads only the needed certificates: reading
/// all that a system trusts takes 20 ms. Trusts the system's file too if the directory has no
/// certificates, or if an environment variable of OpenSSL names the file.
void trust_system(SSL_CTX* context) {
  const OpenSsl& ssl = openssl();
  const bool file_is_named = std::getenv(ssl.X509_get_default_cert_file_env()) != nullptr;
  const bool is_named =
      file_is_named || std::getenv(ssl.X509_get_default_cert_dir_env()) != nullptr;
  const bool has_directory = has_hashed_certificates(ssl.X509_get_default_cert_dir());
  if (file_is_named || !has_directory) ssl.SSL_CTX_set_default_verify_file(context);
  ssl.SSL_CTX_set_default_verify_dir(context);
  if (is_named || has_directory || is_readable(ssl.X509_get_default_cert_file())) return;
  trust_other_distribution(context);
}

void trust(SSL_CTX* context, const std::string& ca) {
  constexpr const char* option = "--tls-ca";
  const OpenSsl& ssl = openssl();
  struct stat is {};
  if (stat(ca.c_str(), &is) == 0 && S_ISDIR(is.st_mode)) {
    if (!has_hashed_certificates(ca)) {
      refuse(option, ca,
             "holds no certificates under their hashes: run openssl rehash on it, or name a file");
    }
    if (ssl.SSL_CTX_load_verify_dir(context, ca.c_str()) != 1) refuse(option, ca, last_reason());
    return;
  }
  pem_in(option, ca, "CERTIFICATE");
  if (ssl.SSL_CTX_load_verify_file(context, ca.c_str()) != 1) refuse(option, ca, last_reason());
}

void show_certificate(SSL_CTX* context, const std::string& path) {
  constexpr const char* option = "--tls-cert";
  pem_in(option, path, "CERTIFICATE");
  if (openssl().SSL_CTX_use_certificate_chain_file(context, path.c_str()) != 1) {
    refuse(option, path, last_reason());
  }
}

void prove_certificate(SSL_CTX* context, const TlsSettings& settings) {
  constexpr const char* option = "--tls-key";
  const std::string& path = settings.key;
  if (pem_in(option, path, "PRIVATE KEY").find("ENCRYPTED") != std::string::npos) {
    refuse(option, path,
           "holds an encrypted private key, and dlock asks nobody for the password: decrypt it by "
           "openssl pkey");
  }
  const OpenSsl& ssl = openssl();
  if (ssl.SSL_CTX_use_PrivateKey_file(context, path.c_str(), SSL_FILETYPE_PEM) != 1) {
    const int reason = ERR_GET_REASON(ssl.ERR_peek_error());
    const bool others = reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH;
    refuse(option, path,
           others ? "holds the key of another certificate than " + escaped(settings.certificate)
                  : last_reason());
  }
}

OpenSslPtr<SSL_CTX> make_context() {
  const OpenSsl& ssl = openssl();
  OpenSslPtr<SSL_CTX> context(ssl.SSL_CTX_new(ssl.TLS_client_method()));
  if (context == nullptr) throw Error(ErrorKind::host_refused, "OpenSSL cannot be set up");
  // The system's configuration may require a newer version.
  const long least = ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_GET_MIN_PROTO_VERSION, 0, nullptr);
  ssl.SSL_CTX_ctrl(context.get(), SSL_CTRL_SET_MIN_PROTO_VERSION,
                   std::max<long>(least, TLS1_2_VERSION), nullptr);
  // Without renegotiation a write never has to wait for a read.
  ssl.SSL_CTX_set_options(context.get(), SSL_OP_NO_RENEGOTIATION);
  return context;
}

OpenSslPtr<SSL_CTX> context_with(const TlsSettings& settings) {
  OpenSslPtr<SSL_CTX> made = make_context();
  SSL_CTX* const context = made.get();
  // Without this, OpenSSL would ask for a password on the terminal.
  openssl().SSL_CTX_set_default_passwd_cb(context, [](char*, int, int, void*) { return -1; });
  openssl().ERR_clear_error();
  settings.ca.empty() ? trust_system(context) : trust(context, settings.ca);
  openssl().ERR_clear_error();
  if (settings.certificate.empty()) return made;
  show_certificate(context, settings.certificate);
  prove_certificate(context, settings);
  return made;
}

}  // namespace

OpenSslPtr<SSL_CTX> client_context(const TlsSettings& settings) {
  // All connections of a process use the same files.
  static std::atomic<bool> were_good{false};
  try {
    OpenSslPtr<SSL_CTX> context = context_with(settings);
    were_good = true;
    return context;
  } catch (const Error& error) {
    throw error.after_good_files(were_good);
  }
}

}  // namespace dlock
