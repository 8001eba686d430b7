#include "net/tls.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <string>

#include "base/clock.hpp"
#include "base/error.hpp"
#include "base/text.hpp"
#include "net/openssl.hpp"

namespace dlock {
namespace {

const std::string shows_no_certificate = "the server shows no certificate";
const std::string wants_certificate =
    "the server wants a client certificate: give one by --tls-cert and --tls-key";
const std::string speaks_old_tls =
    "the server speaks no TLS that is new enough, which is 1.2 or 1.3";

/// Returns the output of `print`, escaped and cut to a useful length.
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

/// `CN=db1,O=Example`, escaped; `(no name)` if the name is empty.
std::string text_of(const X509_NAME* name) {
  // The format of RFC 2253, but with readable UTF-8.
  constexpr unsigned long style =
      XN_FLAG_RFC2253 & ~static_cast<unsigned long>(ASN1_STRFLGS_ESC_MSB);
  const std::string text =
      printed([&](BIO* bio) { return openssl().X509_NAME_print_ex(bio, name, 0, style) >= 0; });
  return text.empty() ? "(no name)" : text;
}

std::string subject_of(const X509* certificate) {
  return text_of(openssl().X509_get_subject_name(certificate));
}

/// The names in a certificate: `DNS:db1, IP Address:10.0.0.7`; without such a list, its subject.
/// Escaped, and cut if it is long.
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

/// `2026-01-02T03:04:05Z`
std::string text_of(const ASN1_TIME* time) {
  constexpr std::size_t to_the_second = sizeof "2026-01-02T03:04:05" - 1;
  return iso8601(wall_time(time)).substr(0, to_the_second) + "Z";
}

Error refused(const std::string& why, Cause cause = Cause::certificate) {
  return {ErrorKind::denied, why, cause};
}

Error unusable(const std::string& why, Cause cause) { return {ErrorKind::unavailable, why, cause}; }

/// Says why the server's certificate was not verified, and what to do, from the `context` of a
/// verify callback. `expected` is the required name or address, `ca` the setting.
Error refusal_in(X509_STORE_CTX* context, const std::string& expected, const std::string& ca) {
  const OpenSsl& ssl = openssl();
  const int error = ssl.X509_STORE_CTX_get_error(context);
  const X509* const at = ssl.X509_STORE_CTX_get_current_cert(context);
  const std::string trusted = ca.empty() ? "those this system trusts" : "those in " + escaped(ca);
  const bool is_servers = ssl.X509_STORE_CTX_get_error_depth(context) == 0;
  if (at == nullptr) return refused(shows_no_certificate);
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
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      return refused(whose + " (" + subject_of(at) + ") is signed by itself and not among " +
                     trusted + ": if it is the right one, give it by --tls-ca");
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return refused("the server's certificate comes from the CA " +
                     text_of(ssl.X509_get_issuer_name(at)) + ", which is not among " + trusted +
                     ": give the certificate of the server's CA by --tls-ca");
    default:
      return refused(whose + " is refused: " + ssl.X509_verify_cert_error_string(error));
  }
}

bool is_address(const std::string& name) {
  std::array<unsigned char, sizeof(in6_addr)> address;
  return inet_pton(AF_INET, name.c_str(), address.data()) == 1 ||
         inet_pton(AF_INET6, name.c_str(), address.data()) == 1;
}

/// The form of a name in a certificate: without the zone of an address and without a dot at the
/// end.
std::string certified_form(std::string name) {
  name.erase(std::min(name.find('%'), name.size()));
  if (name.ends_with('.')) name.pop_back();
  return name;
}

}  // namespace

/// Callbacks from OpenSSL; no exception may leave them.
struct TlsSession::Callbacks {
  static int verified(int ok, X509_STORE_CTX* context) {
    if (ok == 1) return ok;
    const OpenSsl& ssl = openssl();
    const void* of =
        ssl.X509_STORE_CTX_get_ex_data(context, ssl.SSL_get_ex_data_X509_STORE_CTX_idx());
    TlsSession& session = of_ssl(static_cast<const SSL*>(of));
    try {
      session.refusal_ = refusal_in(context, session.expected_, session.settings_.ca);
    } catch (const std::exception&) {
      // Out of memory: the certificate is refused without a reason.
    }
    return 0;
  }

  static int certificate_wanted(SSL* ssl, X509**, EVP_PKEY**) {
    of_ssl(ssl).asked_ = true;
    return 0;
  }

  static TlsSession& of_ssl(const SSL* ssl) {
    return *static_cast<TlsSession*>(openssl().SSL_get_ex_data(ssl, 0));
  }
};

TlsSession::TlsSession(const Endpoint& endpoint)
    : settings_(endpoint.tls.value_or(TlsSettings())),
      expected_(
          certified_form(settings_.server_name.empty() ? endpoint.host : settings_.server_name)),
      context_(client_context(settings_)) {
  const OpenSsl& api = openssl();
  api.SSL_CTX_set_client_cert_cb(context_.get(), &Callbacks::certificate_wanted);
  ssl_.reset(api.SSL_new(context_.get()));
  in_ = api.BIO_new(api.BIO_s_mem());
  out_ = api.BIO_new(api.BIO_s_mem());
  if (ssl_ == nullptr || in_ == nullptr || out_ == nullptr) {
    throw Error(ErrorKind::host_refused, "out of memory");
  }
  api.SSL_set_bio(ssl_.get(), in_, out_);
  api.SSL_set_ex_data(ssl_.get(), 0, this);
  api.SSL_set_verify(ssl_.get(), SSL_VERIFY_PEER, &Callbacks::verified);
  expect_name();
  api.SSL_set_connect_state(ssl_.get());
}

void TlsSession::expect_name() {
  const OpenSsl& api = openssl();
  bool set = false;
  if (is_address(expected_)) {
    set = api.X509_VERIFY_PARAM_set1_ip_asc(api.SSL_get0_param(ssl_.get()), expected_.c_str()) == 1;
  } else if (!expected_.empty() && expected_.find('\0') == std::string::npos) {
    // OpenSSL would accept any name if this one were empty.
    api.SSL_set_hostflags(ssl_.get(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    set = api.SSL_set1_host(ssl_.get(), expected_.c_str()) == 1 &&
          api.SSL_ctrl(ssl_.get(), SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
                       expected_.data()) == 1;
  }
  if (!set) {
    throw_usage("\"" + escaped(expected_) + "\" is no name a server could prove: " +
                "give the name in its certificate by --tls-server-name");
  }
}

void TlsSession::arrive(std::string_view bytes) {
  constexpr char alert = 0x15;
  constexpr char handshake = 0x16;
  if (!heard_ && bytes.front() != alert && bytes.front() != handshake) plain_ = true;
  heard_ = true;
  openssl().BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
}

std::string TlsSession::outgoing() {
  std::string bytes(
      static_cast<std::size_t>(openssl().BIO_ctrl(out_, BIO_CTRL_PENDING, 0, nullptr)), '\0');
  if (!bytes.empty()) openssl().BIO_read(out_, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

bool TlsSession::shake_hands() {
  if (shaken_) return true;
  const OpenSsl& api = openssl();
  api.ERR_clear_error();
  const int done = api.SSL_do_handshake(ssl_.get());
  if (done != 1) {
    if (api.SSL_get_error(ssl_.get(), done) != SSL_ERROR_WANT_READ) throw failure();
    return false;
  }
  const OpenSslPtr<X509> shown(api.SSL_get1_peer_certificate(ssl_.get()));
  if (shown == nullptr || api.SSL_get_verify_result(ssl_.get()) != X509_V_OK) {
    throw refused(shows_no_certificate);
  }
  shaken_ = true;
  return true;
}

void TlsSession::write(std::string_view plain) {
  const OpenSsl& api = openssl();
  api.ERR_clear_error();
  // The memory BIO takes any amount, so all of it is written or nothing.
  const int size = static_cast<int>(plain.size());
  if (size > 0 && api.SSL_write(ssl_.get(), plain.data(), size) != size) throw failure();
}

std::string TlsSession::read() {
  const OpenSsl& api = openssl();
  std::string plain;
  std::array<char, 16 * 1024> buffer;
  while (true) {
    api.ERR_clear_error();
    const int got = api.SSL_read(ssl_.get(), buffer.data(), static_cast<int>(buffer.size()));
    if (got > 0) {
      plain.append(buffer.data(), static_cast<std::size_t>(got));
      continue;
    }
    const int error = api.SSL_get_error(ssl_.get(), got);
    if (error == SSL_ERROR_ZERO_RETURN) closed_ = true;
    if (error != SSL_ERROR_WANT_READ && error != SSL_ERROR_ZERO_RETURN) throw failure();
    accepted_ = true;
    return plain;
  }
}

TlsFacts TlsSession::facts() const {
  const OpenSsl& api = openssl();
  const OpenSslPtr<X509> servers(api.SSL_get1_peer_certificate(ssl_.get()));
  const X509* const own = api.SSL_get_certificate(ssl_.get());
  const WallTime end = wall_time(api.X509_get0_notAfter(servers.get()));
  return {api.SSL_get_version(ssl_.get()),
          own == nullptr ? end : std::min(end, wall_time(api.X509_get0_notAfter(own)))};
}

Error TlsSession::failure() const {
  const auto error = openssl().ERR_peek_error();
  const int reason = ERR_GET_REASON(error);
  if (refusal_) return *refusal_;
  if (plain_) return unusable(speaks_no_tls, Cause::no_tls);
  if (ERR_GET_LIB(error) == ERR_LIB_SSL && reason >= SSL_AD_REASON_OFFSET) {
    return alerted(reason - SSL_AD_REASON_OFFSET);
  }
  if (reason == SSL_R_UNSUPPORTED_PROTOCOL) return unusable(speaks_old_tls, Cause::old_tls);
  const char* const why = openssl().ERR_reason_error_string(error);
  return unusable(std::string("TLS failed: ") + (why == nullptr ? "" : why), Cause::tls_failed);
}

/// The Error for an alert from the server (RFC 8446, 6.2).
Error TlsSession::alerted(int alert) const {
  const std::string_view name = openssl().SSL_alert_desc_string_long(alert);
  const std::string said = name == "unknown" ? "" : " (it said: " + std::string(name) + ")";
  const bool of_certificate = alert >= SSL_AD_BAD_CERTIFICATE && alert <= SSL_AD_UNKNOWN_CA &&
                              alert != SSL_AD_ILLEGAL_PARAMETER;
  if (alert == SSL_AD_PROTOCOL_VERSION) return unusable(speaks_old_tls + said, Cause::old_tls);
  if (alert == TLS13_AD_CERTIFICATE_REQUIRED || may_want_certificate()) {
    return refused(wants_certificate + said);
  }
  if (!settings_.certificate.empty() && (of_certificate || alert == SSL_AD_ACCESS_DENIED)) {
    const X509* const own = openssl().SSL_get_certificate(ssl_.get());
    return refused("the server refuses the client certificate in " +
                   escaped(settings_.certificate) + said + ", which expires at " +
                   text_of(openssl().X509_get0_notAfter(own)));
  }
  return unusable("the server broke TLS off" + said, Cause::tls_failed);
}

/// Whether the server has asked for a certificate that we do not have, and has not continued
/// without one.
bool TlsSession::may_want_certificate() const {
  // In TLS 1.3 the client finishes before the server has checked the client's certificate.
  const bool unsettled =
      !shaken_ || (openssl().SSL_version(ssl_.get()) >= TLS1_3_VERSION && !accepted_);
  return asked_ && unsettled;
}

Error TlsSession::ended(const std::string& broke) const {
  const std::string how = broke.empty() ? "it closed the connection" : broke;
  if (closed_) return unusable("the server closed the connection", Cause::none);
  if (may_want_certificate()) return refused(wants_certificate + " (" + how + ")");
  if (!shaken_) return unusable(how + " during the TLS handshake", Cause::tls_interrupted);
  if (!broke.empty()) return unusable(broke, Cause::none);
  return unusable("the connection was cut without a TLS close", Cause::tls_failed);
}

}  // namespace dlock
