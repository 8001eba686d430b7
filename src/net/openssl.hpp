#pragma once

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <memory>

// This list is used twice: for the members of OpenSsl, and to load them.
#define DLOCK_OPENSSL_FUNCTIONS(EACH)      \
  EACH(ASN1_TIME_to_tm)                    \
  EACH(BIO_ctrl)                           \
  EACH(BIO_free)                           \
  EACH(BIO_new)                            \
  EACH(BIO_read)                           \
  EACH(BIO_s_mem)                          \
  EACH(BIO_write)                          \
  EACH(ERR_clear_error)                    \
  EACH(ERR_peek_error)                     \
  EACH(ERR_reason_error_string)            \
  EACH(OPENSSL_init_ssl)                   \
  EACH(SSL_CTX_ctrl)                       \
  EACH(SSL_CTX_free)                       \
  EACH(SSL_CTX_load_verify_dir)            \
  EACH(SSL_CTX_load_verify_file)           \
  EACH(SSL_CTX_new)                        \
  EACH(SSL_CTX_set_client_cert_cb)         \
  EACH(SSL_CTX_set_default_passwd_cb)      \
  EACH(SSL_CTX_set_default_verify_dir)     \
  EACH(SSL_CTX_set_default_verify_file)    \
  EACH(SSL_CTX_set_options)                \
  EACH(SSL_CTX_use_PrivateKey_file)        \
  EACH(SSL_CTX_use_certificate_chain_file) \
  EACH(SSL_alert_desc_string_long)         \
  EACH(SSL_ctrl)                           \
  EACH(SSL_do_handshake)                   \
  EACH(SSL_free)                           \
  EACH(SSL_get0_param)                     \
  EACH(SSL_get1_peer_certificate)          \
  EACH(SSL_get_certificate)                \
  EACH(SSL_get_error)                      \
  EACH(SSL_get_ex_data)                    \
  EACH(SSL_get_ex_data_X509_STORE_CTX_idx) \
  EACH(SSL_get_verify_result)              \
  EACH(SSL_get_version)                    \
  EACH(SSL_new)                            \
  EACH(SSL_read)                           \
  EACH(SSL_set1_host)                      \
  EACH(SSL_set_bio)                        \
  EACH(SSL_set_connect_state)              \
  EACH(SSL_set_ex_data)                    \
  EACH(SSL_set_hostflags)                  \
  EACH(SSL_set_verify)                     \
  EACH(SSL_version)                        \
  EACH(SSL_write)                          \
  EACH(TLS_client_method)                  \
  EACH(X509V3_EXT_print)                   \
  EACH(X509_NAME_print_ex)                 \
  EACH(X509_STORE_CTX_get_current_cert)    \
  EACH(X509_STORE_CTX_get_error)           \
  EACH(X509_STORE_CTX_get_error_depth)     \
  EACH(X509_STORE_CTX_get_ex_data)         \
  EACH(X509_VERIFY_PARAM_set1_ip_asc)      \
  EACH(X509_free)                          \
  EACH(X509_get0_notAfter)                 \
  EACH(X509_get_default_cert_dir)          \
  EACH(X509_get_default_cert_dir_env)      \
  EACH(X509_get_default_cert_file)         \
  EACH(X509_get_default_cert_file_env)     \
  EACH(X509_get_ext)                       \
  EACH(X509_get_ext_by_NID)                \
  EACH(X509_get_issuer_name)               \
  EACH(X509_get_subject_name)              \
  EACH(X509_verify_cert_error_string)

namespace dlock {

/// The functions of libssl and libcrypto that dlock uses, by their own names.
struct OpenSsl {
#define DLOCK_OPENSSL_MEMBER(name) decltype(&::name) name;
  DLOCK_OPENSSL_FUNCTIONS(DLOCK_OPENSSL_MEMBER)
#undef DLOCK_OPENSSL_MEMBER
};

/// Loads the libraries at the first call, so that a run without TLS saves the millisecond that
/// mapping them takes. Throws Error{host_refused} if they are not installed.
const OpenSsl& openssl();

struct OpenSslFree {
  void operator()(BIO* bio) const { openssl().BIO_free(bio); }
  void operator()(SSL* ssl) const { openssl().SSL_free(ssl); }
  void operator()(SSL_CTX* context) const { openssl().SSL_CTX_free(context); }
  void operator()(X509* certificate) const { openssl().X509_free(certificate); }
};

template <typename T>
using OpenSslPtr = std::unique_ptr<T, OpenSslFree>;

}  // namespace dlock
