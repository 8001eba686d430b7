#pragma once

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>

#include "base/shared_library.hpp"

static_assert(OPENSSL_VERSION_MAJOR >= 3, "libssl 3 or newer");

#ifdef DLOCK_OPENSSL_INSIDE
// The static binary has the functions of OpenSSL, and loads no library.
#undef DLOCK_LIBRARY_FUNCTION
#define DLOCK_LIBRARY_FUNCTION(name) decltype(&::name) name = &::name;
#endif

namespace dlock {

/// The functions of libssl and libcrypto that dlock uses. dlock loads the version whose headers it
/// was compiled with. libssl loads libcrypto, so a function that is not in libssl is found there.
struct OpenSsl {
#ifndef DLOCK_OPENSSL_INSIDE
  SharedLibrary library{"libssl.so." + std::to_string(OPENSSL_SHLIB_VERSION),
                        "TLS needs OpenSSL, on Debian the package libssl3 or libssl3t64"};
#endif
  DLOCK_LIBRARY_FUNCTIONS(BIO_new, SSL_new, BIO_ctrl, BIO_free, BIO_read)
  DLOCK_LIBRARY_FUNCTIONS(SSL_ctrl, SSL_free, SSL_read, BIO_s_mem, BIO_write)
  DLOCK_LIBRARY_FUNCTIONS(SSL_write, X509_free, SSL_CTX_new, SSL_set_bio, SSL_version)
  DLOCK_LIBRARY_FUNCTIONS(SSL_CTX_ctrl, SSL_CTX_free, X509_get_ext, SSL_get_error, SSL_set1_host)
  DLOCK_LIBRARY_FUNCTIONS(ERR_peek_error, SSL_get0_param, SSL_set_verify, ASN1_TIME_to_tm,
                          ERR_clear_error)
  DLOCK_LIBRARY_FUNCTIONS(SSL_get_ex_data, SSL_get_version, SSL_set_ex_data, OPENSSL_init_ssl,
                          SSL_do_handshake)
  DLOCK_LIBRARY_FUNCTIONS(X509V3_EXT_print, SSL_set_hostflags, TLS_client_method,
                          X509_NAME_print_ex, X509_get0_notAfter)
  DLOCK_LIBRARY_FUNCTIONS(SSL_CTX_set_options, SSL_get_certificate, X509_get_ext_by_NID,
                          X509_get_issuer_name, SSL_get_verify_result)
  DLOCK_LIBRARY_FUNCTIONS(SSL_set_connect_state, X509_get_subject_name, ERR_reason_error_string,
                          SSL_CTX_load_verify_dir, SSL_CTX_load_verify_file)
  DLOCK_LIBRARY_FUNCTIONS(X509_STORE_CTX_get_error, SSL_get1_peer_certificate,
                          X509_get_default_cert_dir, SSL_CTX_set_client_cert_cb,
                          SSL_alert_desc_string_long)
  DLOCK_LIBRARY_FUNCTIONS(X509_STORE_CTX_get_ex_data, X509_get_default_cert_file,
                          SSL_CTX_use_PrivateKey_file, SSL_CTX_set_default_passwd_cb,
                          X509_VERIFY_PARAM_set1_ip_asc)
  DLOCK_LIBRARY_FUNCTIONS(X509_get_default_cert_dir_env, X509_verify_cert_error_string,
                          SSL_CTX_set_default_verify_dir, X509_STORE_CTX_get_error_depth,
                          X509_get_default_cert_file_env)
  DLOCK_LIBRARY_FUNCTION(EVP_Digest)
  DLOCK_LIBRARY_FUNCTION(EVP_sha256)
  DLOCK_LIBRARY_FUNCTION(SSL_CTX_set_default_verify_file)
  DLOCK_LIBRARY_FUNCTION(X509_STORE_CTX_get_current_cert)
  DLOCK_LIBRARY_FUNCTION(SSL_CTX_use_certificate_chain_file)
  DLOCK_LIBRARY_FUNCTION(SSL_get_ex_data_X509_STORE_CTX_idx)

  /// The error strings of libcrypto take 0.2 MB in each waiter, and dlock needs them only for
  /// damaged files.
  OpenSsl() { this->OPENSSL_init_ssl(OPENSSL_INIT_NO_LOAD_CRYPTO_STRINGS, nullptr); }
};

/// Loads the libraries at the first call, so that a run without TLS saves the millisecond that
/// mapping them takes. Throws Error{host_refused} if they are not installed.
inline const OpenSsl& openssl() {
  static const OpenSsl functions;
  return functions;
}

struct OpenSslFree {
  void operator()(BIO* bio) const { openssl().BIO_free(bio); }
  void operator()(SSL* ssl) const { openssl().SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { openssl().SSL_CTX_free(context); }
  void operator()(X509* certificate) const { openssl().X509_free(certificate); }
};

template <typename T>
using OpenSslPtr = std::unique_ptr<T, OpenSslFree>;

}  // namespace dlock
