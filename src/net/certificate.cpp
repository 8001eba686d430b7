#include "net/certificate.hpp"

#include <ctime>

#include "base/escape.hpp"

namespace dlock {
namespace {

/// What `print` writes, as far as it is of use to people.
template <typename Print>
std::string printed(const Print& print) {
  constexpr int enough = 300;
  const OpenSslPtr<BIO> bio(openssl().BIO_new(openssl().BIO_s_mem()));
  if (bio == nullptr || !print(bio.get())) return "";
  char text[enough];
  const int size = openssl().BIO_read(bio.get(), text, enough);
  if (size <= 0) return "";
  return escaped({text, static_cast<std::size_t>(size)}) + (size == enough ? "..." : "");
}

std::string subject_of(const X509* certificate) {
  return text_of(openssl().X509_get_subject_name(certificate));
}

std::string trusted_ones(const std::string& ca) {
  return ca.empty() ? "those this system trusts" : "those in " + escaped(ca);
}

Error refused(const std::string& why, Cause cause = Cause::certificate) {
  return {ErrorKind::denied, why, cause};
}

}  // namespace

std::string text_of(const X509_NAME* name) {
  // As RFC 2253 has it, but with UTF-8 left readable.
  constexpr unsigned long style =
      XN_FLAG_RFC2253 & ~static_cast<unsigned long>(ASN1_STRFLGS_ESC_MSB);
  const std::string text =
      printed([&](BIO* bio) { return openssl().X509_NAME_print_ex(bio, name, 0, style) >= 0; });
  return text.empty() ? "(no name)" : text;
}

std::string names_in(const X509* certificate) {
  const int at = openssl().X509_get_ext_by_NID(certificate, NID_subject_alt_name, -1);
  const std::string list = printed([&](BIO* bio) {
    return at >= 0 &&
           openssl().X509V3_EXT_print(bio, openssl().X509_get_ext(certificate, at), 0, 0) == 1;
  });
  return list.empty() ? subject_of(certificate) : list;
}

WallTime wall_time(const ASN1_TIME* time) {
  std::tm parts{};
  if (time == nullptr || openssl().ASN1_TIME_to_tm(time, &parts) != 1) return {};
  return WallTime(std::chrono::seconds(timegm(&parts)));
}

std::string text_of(const ASN1_TIME* time) {
  constexpr std::size_t to_the_second = sizeof "2026-01-02T03:04:05" - 1;
  return iso8601(wall_time(time)).substr(0, to_the_second) + "Z";
}

Error refusal_in(X509_STORE_CTX* context, const std::string& expected, const std::string& ca) {
  const OpenSsl& ssl = openssl();
  const int error = ssl.X509_STORE_CTX_get_error(context);
  const X509* const at = ssl.X509_STORE_CTX_get_current_cert(context);
  const bool is_servers = ssl.X509_STORE_CTX_get_error_depth(context) == 0;
  if (at == nullptr) return refused("the server shows no certificate");
  const std::string whose =
      is_servers ? "the server's certificate"
                 : "the CA certificate " + subject_of(at) + " behind the server's certificate";
  switch (error) {
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return refused(whose + " is for " + names_in(at) + ", not for " + escaped(expected) +
                     ": if it is the right server, give the name by --tls-server-name");
    case X509_V_ERR_CERT_HAS_EXPIRED:
      return refused(whose + " expired at " + text_of(ssl.X509_get0_notAfter(at)) +
                         ": the server needs a new one",
                     Cause::certificate_expired);
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return refused(whose + " is not valid before " + text_of(ssl.X509_get0_notBefore(at)) +
                     ": is the clock of this host right?");
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      return refused(whose + " (" + subject_of(at) + ") is signed by itself and not among " +
                     trusted_ones(ca) + ": if it is the right one, give it by --tls-ca");
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return refused("the server's certificate comes from the CA " +
                     text_of(ssl.X509_get_issuer_name(at)) + ", which is not among " +
                     trusted_ones(ca) + ": give the certificate of the server's CA by --tls-ca");
    default:
      return refused(whose + " is refused: " + ssl.X509_verify_cert_error_string(error));
  }
}

}  // namespace dlock
