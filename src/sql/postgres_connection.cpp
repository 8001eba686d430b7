#include <libpq-fe.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/shared_library.hpp"
#include "base/text.hpp"
#include "net/resolve.hpp"
#include "sql/sql_backend.hpp"

namespace dlock {
namespace {

/// The functions of libpq that dlock uses.
struct LibPq {
  SharedLibrary library{"libpq.so.5",
                        "locks in PostgreSQL need libpq, on Debian the package libpq5"};
  DLOCK_LIBRARY_FUNCTIONS(PQclear, PQfinish, PQflush, PQftype, PQisBusy)
  DLOCK_LIBRARY_FUNCTIONS(PQfreemem, PQnfields, PQntuples, PQsocket, PQstatus)
  DLOCK_LIBRARY_FUNCTIONS(PQgetResult, PQgetisnull, PQgetvalue, PQnotifies, PQsendQuery)
  DLOCK_LIBRARY_FUNCTIONS(PQbackendPID, PQconndefaults, PQconnectPoll, PQconninfoFree,
                          PQconsumeInput)
  DLOCK_LIBRARY_FUNCTIONS(PQconninfoParse, PQerrorMessage, PQresultStatus, PQsetnonblocking,
                          PQunescapeBytea)
  DLOCK_LIBRARY_FUNCTIONS(PQconnectStartParams, PQconnectionNeedsPassword, PQresultErrorField,
                          PQsetErrorVerbosity, PQsetNoticeReceiver)
};

/// Loads the library at the first call: it loads 25 others, and a run on another engine must not
/// pay for that. Throws Error{host_refused} if it is not installed.
const LibPq& libpq() {
  static const LibPq functions;
  return functions;
}

/// Frees the objects of libpq.
struct LibPqFree {
  void operator()(PGconn* connection) const { libpq().PQfinish(connection); }
  void operator()(PGresult* result) const { libpq().PQclear(result); }
  void operator()(PQconninfoOption* options) const { libpq().PQconninfoFree(options); }
  void operator()(void* memory) const { libpq().PQfreemem(memory); }
};

template <typename T>
using LibPqPtr = std::unique_ptr<T, LibPqFree>;

std::string parameter(const PQconninfoOption* options, const char* name) {
  for (; options != nullptr && options->keyword != nullptr; ++options) {
    if (std::strcmp(options->keyword, name) == 0 && options->val != nullptr) return options->val;
  }
  return "";
}

std::ptrdiff_t entries_in(const std::string& list) {
  return 1 + std::count(list.begin(), list.end(), ',');
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

/// Takes the SQLSTATE, if there is one, from a message such as
/// "connection to server ... failed: FATAL:  28P01: password ...\nLOCATION:  ...", and returns the
/// rest in one line.
std::string in_one_line(std::string_view said, std::string* sqlstate = nullptr) {
  constexpr std::size_t blanks = 3, state = 5, colon = 2;
  std::string text;
  while (!said.empty()) {
    std::string line(take_until(said, '\n'));
    if (line.empty() || line.starts_with("LOCATION:")) continue;
    const auto at = line.find(":  ") + blanks;
    if (at >= blanks && line.compare(std::min(at + state, line.size()), colon, ": ") == 0) {
      if (sqlstate != nullptr) *sqlstate = line.substr(at, state);
      line.erase(at - 1, state + colon);
    }
    text += (text.empty() ? "" : "; ") + line;
  }
  return text;
}

/// The meanings of error codes; see Appendix A of PostgreSQL's manual.
SqlError meaning_of(std::string_view state) {
  constexpr std::pair<std::string_view, SqlError> meanings[] = {
      {"40001", SqlError::overtaken},
      {"40P01", SqlError::overtaken},
      // Another client has created the table at the same time. The loser gets one of three errors:
      // about the catalogue's index, the table, or the type that each table has.
      {"23505", SqlError::overtaken},
      {"42P07", SqlError::overtaken},
      {"42710", SqlError::overtaken},
      {"55P03", SqlError::row_locked},
      {"42P01", SqlError::no_table},
      {"42501", SqlError::denied},
      {"3F000", SqlError::denied},
      {"42703", SqlError::other_table},
      {"42804", SqlError::other_table},
      {"42883", SqlError::other_table},
      {"42809", SqlError::other_table},
      {"42P10", SqlError::other_table},
      {"23502", SqlError::other_table},
      {"25006", SqlError::read_only}};
  for (const auto& [code, meaning] : meanings) {
    if (code == state) return meaning;
  }
  return state.starts_with("28") ? SqlError::denied : SqlError::other;
}

SqlResult result_from(const PGresult* from) {
  const auto& lib = libpq();
  const auto status = lib.PQresultStatus(from);
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
    const auto field = [&](int code) {
      const char* const text = lib.PQresultErrorField(from, code);
      return std::string(text == nullptr ? "" : text);
    };
    return {meaning_of(field(PG_DIAG_SQLSTATE)), field(PG_DIAG_MESSAGE_PRIMARY)};
  }
  constexpr Oid bytea = 17;
  SqlResult result;
  const int columns = lib.PQnfields(from);
  for (int row = 0; row < lib.PQntuples(from); ++row) {
    auto& values = result.rows.emplace_back();
    for (int column = 0; column < columns; ++column) {
      auto& value = values.emplace_back();
      if (lib.PQgetisnull(from, row, column) != 0) continue;
      value = lib.PQgetvalue(from, row, column);
      if (lib.PQftype(from, column) != bytea) continue;
      std::size_t size = 0;
      const auto* text = reinterpret_cast<const unsigned char*>(value->c_str());
      const LibPqPtr<unsigned char> bytes(lib.PQunescapeBytea(text, &size));
      if (bytes == nullptr) throw std::bad_alloc();
      value->assign(reinterpret_cast<const char*>(bytes.get()), size);
    }
  }
  return result;
}

class PostgresConnection final : public SqlConnection {
 public:
  PostgresConnection(const std::string& url, const std::string& shown,
                     std::optional<Password> password)
      : SqlConnection(shown), password_(std::move(password)) {
    schema_in(url, &url_);
  }

  void send(const std::string& statements, const CallOptions& call_options) override {
    const auto& lib = libpq();
    if (lib.PQsendQuery(connection_.get(), statements.c_str()) == 0) broke();
    while (true) {
      const int left = lib.PQflush(connection_.get());
      if (left < 0) broke();
      if (left == 0) return;
      await(POLLIN | POLLOUT, call_options);
      if (lib.PQconsumeInput(connection_.get()) == 0) broke();
    }
  }

  std::vector<SqlResult> receive(const CallOptions& call_options) override {
    const auto& lib = libpq();
    std::vector<SqlResult> results;
    while (true) {
      while (lib.PQisBusy(connection_.get()) != 0) {
        await(POLLIN, call_options);
        if (lib.PQconsumeInput(connection_.get()) == 0) broke();
      }
      const LibPqPtr<PGresult> result(lib.PQgetResult(connection_.get()));
      if (result == nullptr) break;
      results.push_back(result_from(result.get()));
    }
    if (lib.PQstatus(connection_.get()) != CONNECTION_OK) broke();
    return results;
  }

  std::optional<Notification> next_notification() override {
    if (libpq().PQconsumeInput(connection_.get()) == 0) broke();
    const LibPqPtr<PGnotify> notify(libpq().PQnotifies(connection_.get()));
    if (notify == nullptr) return std::nullopt;
    return Notification{notify->relname, notify->extra};
  }

  int fd() const override { return libpq().PQsocket(connection_.get()); }
  bool is_open() const override { return connection_ != nullptr; }
  void close() override { connection_.reset(); }

 private:
  bool is_stale() override {
    const auto works = [&] { return libpq().PQstatus(connection_.get()) == CONNECTION_OK; };
    if (!works() || !readable(fd())) return !works();
    return libpq().PQconsumeInput(connection_.get()) == 0 || !works();
  }

  /// Looks up the hosts in the URL, or else in libpq's environment, because libpq would wait for
  /// the resolver without a limit. Returns all addresses in the order of the hosts, without hosts
  /// that could not be looked up. If libpq has nothing to look up, hosts() returns one Host without
  /// fields. Throws Error{unavailable} if none is found, and Error{usage} if libpq refuses the URL.
  std::vector<Host> hosts(const CallOptions& call_options) override {
    char* said = nullptr;
    const LibPqPtr<PQconninfoOption> options(libpq().PQconninfoParse(url_.c_str(), &said));
    const LibPqPtr<char> message(said);
    if (options == nullptr) throw_usage(without_secrets(said == nullptr ? "" : said, url_));
    // The environment, and a service named there, supply what the URL leaves out. A service named
    // in the URL overrides them, and libpq does not report what that service contains.
    const bool has_service = !parameter(options.get(), "service").empty();
    const LibPqPtr<PQconninfoOption> defaults(has_service ? nullptr : libpq().PQconndefaults());
    const auto value = [&](const char* name) {
      const std::string given = parameter(options.get(), name);
      return given.empty() ? parameter(defaults.get(), name) : given;
    };
    const std::string names = value("host"), ports = value("port");
    const auto ports_given = entries_in(ports);
    const bool has_addresses = !value("hostaddr").empty() || std::getenv("PGHOSTADDR") != nullptr;
    const bool fits = ports_given == 1 || ports_given == entries_in(names);
    if (names.empty() || has_addresses || !fits) return {Host{}};
    std::vector<Host> found;
    std::optional<Error> trouble;
    std::string_view rest = names, rest_of_ports = ports;
    for (auto left = entries_in(names); left > 0; --left) {
      const std::string name(take_until(rest, ','));
      std::string port(ports_given == 1 ? ports : take_until(rest_of_ports, ','));
      // An empty port means libpq's default; passed empty, it would leave the URL's list in effect.
      if (ports_given > 1 && port.empty()) port = "5432";
      if (name.empty() || name.front() == '/' || name.front() == '@') {
        found.push_back({name, "", port});
        continue;
      }
      try {
        const auto share = share_of(call_options, static_cast<std::size_t>(left));
        for (const std::string& address : resolve_in_digits(name, share)) {
          found.push_back({name, address, port});
        }
      } catch (const Error& error) {
        if (error.kind() == ErrorKind::interrupted) throw;
        trouble = error;
      }
    }
    if (found.empty() && trouble) throw Error(*trouble);
    return found;
  }

  std::int64_t log_in(const Host& host, const CallOptions& call_options) override {
    const std::string password = password_ ? password_->text(call_options) : "";
    // With several hosts, libpq takes the first that is writable.
    const char* const wanted = url_.find(',') == std::string::npos ? "" : "read-write";
    // libpq ignores empty values, and reads the URL at the position of `dbname`; later parameters
    // override it.
    const char* const names[] = {"fallback_application_name",
                                 "target_session_attrs",
                                 "dbname",
                                 "host",
                                 "hostaddr",
                                 "port",
                                 "password",
                                 nullptr};
    const char* const values[] = {
        "dlock",           wanted,           url_.c_str(), host.name.c_str(), host.address.c_str(),
        host.port.c_str(), password.c_str(), nullptr};
    const auto& lib = libpq();
    connection_.reset(lib.PQconnectStartParams(names, values, 1));
    if (connection_ == nullptr) throw Error(ErrorKind::host_refused, "out of memory");
    lib.PQsetErrorVerbosity(connection_.get(), PQERRORS_VERBOSE);
    lib.PQsetNoticeReceiver(
        connection_.get(), [](void*, const PGresult*) {}, nullptr);
    auto state = lib.PQstatus(connection_.get()) == CONNECTION_BAD ? PGRES_POLLING_FAILED
                                                                   : PGRES_POLLING_WRITING;
    while (state != PGRES_POLLING_OK) {
      if (state == PGRES_POLLING_FAILED) refuse_login();
      await(state == PGRES_POLLING_READING ? POLLIN : POLLOUT, call_options);
      state = lib.PQconnectPoll(connection_.get());
    }
    lib.PQsetnonblocking(connection_.get(), 1);
    return lib.PQbackendPID(connection_.get());
  }

  [[noreturn]] void refuse_login() {
    std::string state;
    const std::string text = in_one_line(libpq().PQerrorMessage(connection_.get()), &state);
    const std::string said = name() + ": " + escaped(text);
    if (state == "42501") throw Error(ErrorKind::denied, said, Cause::acl);
    if (state.starts_with("28") || libpq().PQconnectionNeedsPassword(connection_.get()) != 0) {
      throw Error(ErrorKind::denied, said, Cause::password_wrong);
    }
    if (state == "53300") throw_unavailable(said, Cause::too_many_clients);
    if (state == "57P03") throw_unavailable(said, Cause::loading);
    if (!state.empty()) throw_unavailable(said);
    // libpq checks the values of parameters before it connects, and its texts are not translated.
    if (text.starts_with("invalid ")) throw_usage(name() + ": " + without_secrets(text, url_));
    // libpq reports no SQLSTATE for TLS errors.
    throw Error(tls_error(text, said));
  }

  [[noreturn]] void broke() {
    SqlConnection::broke(in_one_line(libpq().PQerrorMessage(connection_.get())));
  }

  std::string url_;
  std::optional<Password> password_;
  LibPqPtr<PGconn> connection_;
};

}  // namespace

std::unique_ptr<SqlConnection> postgres_connection(const std::string& url, const std::string& shown,
                                                   const std::optional<Password>& password) {
  return std::make_unique<PostgresConnection>(url, shown, password);
}

}  // namespace dlock
