#include "sql/postgres_connection.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "base/error.hpp"
#include "base/shared_library.hpp"
#include "base/text.hpp"
#include "base/wait.hpp"
#include "net/resolve.hpp"
#include "sql/database.hpp"

namespace dlock {
namespace {

LibPq load_libpq() {
  const SharedLibrary library("libpq.so.5",
                              "locks in PostgreSQL need libpq, on Debian the package libpq5");
  LibPq loaded{};
#define DLOCK_LIBPQ_LOAD(name) library.find(#name, loaded.name);
  DLOCK_LIBPQ_FUNCTIONS(DLOCK_LIBPQ_LOAD)
#undef DLOCK_LIBPQ_LOAD
  return loaded;
}

std::string parameter(const PQconninfoOption* options, const char* name) {
  for (; options != nullptr && options->keyword != nullptr; ++options) {
    if (std::strcmp(options->keyword, name) == 0)
      return options->val == nullptr ? "" : options->val;
  }
  return "";
}

std::vector<std::string> entries(std::string_view list) {
  std::vector<std::string> all;
  for (auto comma = list.find(','); comma != std::string_view::npos; comma = list.find(',')) {
    all.emplace_back(list.substr(0, comma));
    list.remove_prefix(comma + 1);
  }
  all.emplace_back(list);
  return all;
}

bool is_socket(const std::string& host) {
  return host.empty() || host.front() == '/' || host.front() == '@';
}

/// The message of libpq about a URL with a wrong parameter, without its quotation if that may be
/// the rest of a password.
std::string without_secrets(std::string_view said, const std::string& url) {
  const std::string plain = percent_decoded(url);
  const auto has = [&](const char* word) { return plain.find(word) != std::string::npos; };
  said = said.substr(0, said.find('\n'));
  if (!has("password=") && !has("_secret=") && !has("_key=")) return escaped(said);
  return escaped(said.substr(0, said.find(": \""))) + "; an & in a password is %26";
}

/// Looks up the hosts in a URL of PostgreSQL, or else in libpq's environment, because libpq would
/// wait for the resolver without a limit. Returns all addresses in the order of the hosts, without
/// hosts that could not be looked up. Returns nothing if no host is given or libpq would look none
/// up. Throws Error{unavailable} if none is found, and Error{usage} if libpq refuses the URL.
std::vector<PostgresHost> look_up_hosts(const std::string& url, const CallOptions& call_options) {
  char* said = nullptr;
  const LibPqPtr<PQconninfoOption> options(libpq().PQconninfoParse(url.c_str(), &said));
  const LibPqPtr<char> message(said);
  if (options == nullptr) throw_usage(without_secrets(said == nullptr ? "" : said, url));
  // The environment, and a service named there, supply what the URL leaves out. A service named in
  // the URL overrides them, and libpq does not report what that contains.
  const bool has_service = !parameter(options.get(), "service").empty();
  const LibPqPtr<PQconninfoOption> defaults(has_service ? nullptr : libpq().PQconndefaults());
  const auto value = [&](const char* name) {
    const std::string given = parameter(options.get(), name);
    return given.empty() ? parameter(defaults.get(), name) : given;
  };
  const auto hosts = entries(value("host"));
  auto ports = entries(value("port"));
  // An empty entry of a list means libpq's default port; passed by itself it would leave the URL's
  // list in effect.
  if (ports.size() > 1)
    std::replace(ports.begin(), ports.end(), std::string(), std::string("5432"));
  if (ports.size() == 1) ports.resize(hosts.size(), ports.front());
  const bool has_addresses = !value("hostaddr").empty() || std::getenv("PGHOSTADDR") != nullptr;
  const bool all_sockets = std::all_of(hosts.begin(), hosts.end(), is_socket);
  const bool some_empty = std::find(hosts.begin(), hosts.end(), "") != hosts.end();
  if (has_addresses || all_sockets || some_empty || ports.size() != hosts.size()) return {};
  std::vector<PostgresHost> found;
  std::optional<Error> trouble;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (is_socket(hosts[i])) {
      found.push_back({hosts[i], "", ports[i]});
      continue;
    }
    try {
      for (const std::string& address :
           resolve_in_digits(hosts[i], share_of(call_options, hosts.size() - i))) {
        found.push_back({hosts[i], address, ports[i]});
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::interrupted) throw;
      trouble = error;
    }
  }
  if (found.empty() && trouble) throw Error(*trouble);
  return found;
}

/// The message of libpq for a failed connection, in one line, and its SQLSTATE, if any.
struct ConnectError {
  std::string text;
  std::string sqlstate;
};

bool is_sqlstate(std::string_view word) {
  return word.size() == 5 && std::all_of(word.begin(), word.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z');
         });
}

/// Takes the text and the SQLSTATE from a message such as
/// "connection to server ... failed: FATAL:  28P01: password ...\nLOCATION:  ...".
ConnectError read_connect_error(std::string_view said) {
  ConnectError error;
  while (!said.empty()) {
    const auto line = take_until(said, '\n');
    if (line.empty() || line.starts_with("LOCATION:")) continue;
    std::string shown(line);
    for (std::size_t at = line.find(":  "); at != std::string_view::npos;
         at = line.find(":  ", at + 1)) {
      const auto word = line.substr(at + 3, 5);
      if (!is_sqlstate(word) || line.substr(at + 8, 2) != ": ") continue;
      error.sqlstate = word;
      shown = std::string(line.substr(0, at + 2)) + std::string(line.substr(at + 10));
      break;
    }
    error.text += (error.text.empty() ? "" : "; ") + shown;
  }
  return error;
}

/// If libpq tried with TLS and without, its message has both tries, and this returns the last.
std::string_view last_try(std::string_view said) {
  const auto at = said.rfind("connection to server ");
  return at == std::string_view::npos ? said : said.substr(at);
}

void ignore_notice(void*, const PGresult*) {}

}  // namespace

const LibPq& libpq() {
  static const LibPq functions = load_libpq();
  return functions;
}

std::string take_schema(std::string& url) {
  constexpr std::string_view name = "dlock-schema=";
  const std::string whole = std::exchange(url, "");
  std::string_view rest = whole;
  url = take_until(rest, '?');
  std::string schema;
  for (char separator = '?'; !rest.empty();) {
    const auto parameter = take_until(rest, '&');
    if (parameter.starts_with(name)) {
      schema = percent_decoded(parameter.substr(name.size()));
      continue;
    }
    url += std::exchange(separator, '&') + std::string(parameter);
  }
  return schema;
}

bool PostgresResult::failed() const {
  const auto status = libpq().PQresultStatus(result_.get());
  return status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_EMPTY_QUERY;
}

std::optional<std::string_view> PostgresResult::value(int row, int column) const {
  if (libpq().PQgetisnull(result_.get(), row, column) != 0) return std::nullopt;
  const auto size = static_cast<std::size_t>(libpq().PQgetlength(result_.get(), row, column));
  return std::string_view(libpq().PQgetvalue(result_.get(), row, column), size);
}

std::string PostgresResult::field(int code) const {
  const char* text = libpq().PQresultErrorField(result_.get(), code);
  return text == nullptr ? "" : text;
}

PostgresConnection::PostgresConnection(PostgresTerms terms)
    : terms_(std::move(terms)), schema_(take_schema(terms_.url)) {}

void PostgresConnection::cannot_connect() {
  const LibPqPtr<PGconn> failed = std::move(connection_);
  const ConnectError error = read_connect_error(libpq().PQerrorMessage(failed.get()));
  const std::string said = terms_.shown + ": " + escaped(error.text);
  const bool refused = error.sqlstate.starts_with("28") || error.sqlstate == "42501" ||
                       libpq().PQconnectionNeedsPassword(failed.get()) != 0;
  if (refused) {
    const bool of_a_right = error.sqlstate == "42501";
    throw Error(ErrorKind::denied, said, of_a_right ? Cause::acl : Cause::password_wrong);
  }
  if (error.sqlstate == "53300") throw_unavailable(said, Cause::too_many_clients);
  if (error.sqlstate == "57P03") throw_unavailable(said, Cause::loading);
  if (!error.sqlstate.empty()) throw_unavailable(said);
  // libpq checks the values of parameters before it connects, and its texts are not translated.
  if (error.text.starts_with("invalid ")) {
    throw_usage(terms_.shown + ": " + without_secrets(error.text, terms_.url));
  }
  // libpq reports no SQLSTATE for TLS errors.
  const ErrorKind kind = tls_error_kind(last_try(error.text));
  const Cause cause = kind == ErrorKind::denied ? Cause::certificate : Cause::none;
  throw Error(kind, said, cause).after_good_files(count_ > 0);
}

void PostgresConnection::broke() {
  const ConnectError error = read_connect_error(libpq().PQerrorMessage(connection_.get()));
  connection_.reset();
  throw Error(ErrorKind::unavailable,
              terms_.shown + ": the connection broke" +
                  (error.text.empty() ? std::string() : ": " + escaped(error.text)));
}

void PostgresConnection::wait(short events, const CallOptions& call_options) {
  pollfd fds[] = {{call_options.cancel_fd, POLLIN, 0},
                  {libpq().PQsocket(connection_.get()), events, 0}};
  poll_until(fds, call_options.deadline);
  if (fds[0].revents != 0) {
    connection_.reset();
    throw_interrupted();
  }
  // A server that sends without end gets no more time than a silent one.
  if (fds[1].revents != 0 && BootClock::now() < call_options.deadline) return;
  connection_.reset();
  throw_unavailable(terms_.shown + ": no answer in time");
}

bool PostgresConnection::is_stale() const {
  if (libpq().PQstatus(connection_.get()) != CONNECTION_OK) return true;
  if (!readable(libpq().PQsocket(connection_.get()))) return false;
  return libpq().PQconsumeInput(connection_.get()) == 0 ||
         libpq().PQstatus(connection_.get()) != CONNECTION_OK;
}

std::vector<PostgresHost> PostgresConnection::addresses(const CallOptions& call_options) const {
  try {
    return look_up_hosts(terms_.url, call_options);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::interrupted) throw;
    throw error.reworded(terms_.shown + ": " + error.what());
  }
}

void PostgresConnection::connect(const CallOptions& call_options) {
  if (connection_ != nullptr && !is_stale()) return;
  const auto hosts = addresses(call_options);
  if (hosts.empty()) return connect_to(nullptr, call_options);
  std::optional<Error> away;
  // libpq itself would give all the time to a host that never answers.
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::size_t left = hosts.size() - i;
    try {
      return connect_to(&hosts[i], share_of(call_options, left));
    } catch (const Error& error) {
      const bool is_away = error.kind() == ErrorKind::unavailable;
      // Another host may have a certificate that is trusted.
      if (!is_away && error.cause() != Cause::certificate) throw;
      if (is_away) away = error;
      if (left > 1) continue;
      // A host that is unreachable now may answer later.
      if (away) throw Error(*away);
      throw;
    }
  }
}

void PostgresConnection::connect_to(const PostgresHost* host, const CallOptions& call_options) {
  // libpq reads the URL at the position of `dbname`; later parameters override it. With several
  // hosts, it uses the first that is writable.
  std::vector<const char*> names{"fallback_application_name"};
  std::vector<const char*> values{"dlock"};
  const auto add = [&](const char* name, const char* value) {
    names.push_back(name);
    values.push_back(value);
  };
  if (terms_.url.find(',') != std::string::npos) add("target_session_attrs", "read-write");
  add("dbname", terms_.url.c_str());
  if (host != nullptr) {
    add("host", host->host.c_str());
    add("hostaddr", host->hostaddr.c_str());
    add("port", host->port.c_str());
  }
  const std::string password = terms_.password ? terms_.password->text(call_options) : "";
  if (terms_.password) add("password", password.c_str());
  add(nullptr, nullptr);
  connection_.reset(libpq().PQconnectStartParams(names.data(), values.data(), 1));
  if (connection_ == nullptr) throw Error(ErrorKind::host_refused, "out of memory");
  libpq().PQsetErrorVerbosity(connection_.get(), PQERRORS_VERBOSE);
  libpq().PQsetNoticeReceiver(connection_.get(), ignore_notice, nullptr);
  auto state = libpq().PQstatus(connection_.get()) == CONNECTION_BAD ? PGRES_POLLING_FAILED
                                                                     : PGRES_POLLING_WRITING;
  while (state != PGRES_POLLING_OK) {
    if (state == PGRES_POLLING_FAILED) {
      cannot_connect();
    }
    wait(state == PGRES_POLLING_READING ? POLLIN : POLLOUT, call_options);
    state = libpq().PQconnectPoll(connection_.get());
  }
  libpq().PQsetnonblocking(connection_.get(), 1);
  ++count_;
}

bool PostgresConnection::in_transaction() const {
  return libpq().PQtransactionStatus(connection_.get()) != PQTRANS_IDLE;
}

void PostgresConnection::flush(const CallOptions& call_options) {
  while (true) {
    const int left = libpq().PQflush(connection_.get());
    if (left < 0) broke();
    if (left == 0) return;
    wait(POLLIN | POLLOUT, call_options);
    if (libpq().PQconsumeInput(connection_.get()) == 0) broke();
  }
}

std::vector<PostgresResult> PostgresConnection::query(const std::string& statements,
                                                      const CallOptions& call_options) {
  connect(call_options);
  if (libpq().PQsendQuery(connection_.get(), statements.c_str()) == 0) broke();
  flush(call_options);
  if (call_options.sent != nullptr) call_options.sent->raise();
  std::vector<PostgresResult> results;
  while (true) {
    while (libpq().PQisBusy(connection_.get()) != 0) {
      wait(POLLIN, call_options);
      if (libpq().PQconsumeInput(connection_.get()) == 0) broke();
    }
    LibPqPtr<PGresult> result(libpq().PQgetResult(connection_.get()));
    if (result == nullptr) break;
    results.emplace_back(std::move(result));
  }
  if (libpq().PQstatus(connection_.get()) != CONNECTION_OK) broke();
  return results;
}

std::optional<PostgresConnection::Notification> PostgresConnection::next_notification(
    const CallOptions& call_options) {
  for (bool first = true;; first = false) {
    if (connection_ == nullptr) throw_unavailable(terms_.shown + ": the connection was closed");
    if (const LibPqPtr<PGnotify> notify{libpq().PQnotifies(connection_.get())}) {
      return Notification{notify->relname, notify->extra};
    }
    if (!first && BootClock::now() >= call_options.deadline) return std::nullopt;
    pollfd fds[] = {{call_options.cancel_fd, POLLIN, 0},
                    {libpq().PQsocket(connection_.get()), POLLIN, 0}};
    if (poll_until(fds, call_options.deadline) == 0) return std::nullopt;
    if (fds[0].revents != 0) throw_interrupted();
    if (libpq().PQconsumeInput(connection_.get()) == 0) broke();
  }
}

}  // namespace dlock
