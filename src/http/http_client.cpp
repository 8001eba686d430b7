#include "http/http_client.hpp"

#include <fcntl.h>

// libcurl's type checks are macros that call functions by name, so dlock turns them off.
// CURL_STRICTER makes the handles distinct types instead of void.
#define CURL_DISABLE_TYPECHECK
#define CURL_STRICTER
#include <curl/curl.h>

#include <algorithm>
#include <cctype>
#include <ctime>
#include <deque>
#include <filesystem>
#include <new>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/shared_library.hpp"
#include "base/text.hpp"
#include "net/resolve.hpp"
#include "net/tls.hpp"

// libcurl's header defines these as macros, to check arguments.
#undef curl_easy_setopt
#undef curl_easy_getinfo
#undef curl_multi_setopt

namespace dlock {
namespace {

/// A limit for memory: the answer of an engine to one request is far smaller.
constexpr std::size_t largest_answer = 16u << 20;
/// Of one client; its other requests wait until one of these has ended.
constexpr long connections_to_a_server = 8;
constexpr milliseconds longest_poll{3'600'000};
constexpr milliseconds longest_poll_of_connect{100};
/// The limit for a stream, which has no deadline.
constexpr milliseconds longest_connect{10'000};

/// The functions of libcurl that dlock uses.
struct LibCurl {
  SharedLibrary library{"libcurl.so.4",
                        "locks over HTTP need libcurl, on Debian the package libcurl4"};
  DLOCK_LIBRARY_FUNCTIONS(curl_easy_cleanup, curl_easy_getinfo, curl_easy_init, curl_easy_setopt,
                          curl_easy_strerror)
  DLOCK_LIBRARY_FUNCTIONS(curl_multi_add_handle, curl_multi_cleanup, curl_multi_info_read,
                          curl_multi_init, curl_multi_perform)
  DLOCK_LIBRARY_FUNCTIONS(curl_multi_poll, curl_multi_remove_handle, curl_multi_setopt,
                          curl_slist_append, curl_slist_free_all)
  DLOCK_LIBRARY_FUNCTION(curl_global_init)

  LibCurl() {
    if (this->curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
      throw Error(ErrorKind::host_refused, "libcurl cannot be used on this host");
    }
  }
};

/// Loads libcurl at the first call: libcurl loads other libraries, which a run on another engine
/// does not need.
const LibCurl& libcurl() {
  static const LibCurl functions;
  return functions;
}

/// Frees what libcurl has allocated, one type each: from 8.11 on, all its handles are void*.
struct FreeCurl {
  void operator()(CURL* handle) const { libcurl().curl_easy_cleanup(handle); }
};
struct FreeCurlList {
  void operator()(curl_slist* list) const { libcurl().curl_slist_free_all(list); }
};
using CurlPtr = std::unique_ptr<CURL, FreeCurl>;
using CurlListPtr = std::unique_ptr<curl_slist, FreeCurlList>;

[[noreturn]] void throw_out_of_memory() { throw Error(ErrorKind::host_refused, "out of memory"); }

/// Appends `line`, unless it is empty.
void append(CurlListPtr& list, const std::string& line) {
  if (line.empty()) return;
  curl_slist* const longer = libcurl().curl_slist_append(list.get(), line.c_str());
  if (longer == nullptr) throw_out_of_memory();
  static_cast<void>(list.release());
  list.reset(longer);
}

/// Without this callback a command would inherit libcurl's sockets.
int close_on_exec(void*, curl_socket_t fd, curlsocktype) {
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return CURL_SOCKOPT_OK;
}

/// The descriptors that a command would inherit, in the range of numbers that libraries get.
std::set<int> inheritable_descriptors() {
  constexpr int most_looked_at = 256;
  std::set<int> found;
  for (int fd = 0; fd < most_looked_at; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags >= 0 && (flags & FD_CLOEXEC) == 0) found.insert(fd);
  }
  return found;
}

/// A new handle of connections, whose own descriptors a command does not inherit.
std::shared_ptr<void> new_multi() {
  const auto of_the_caller = inheritable_descriptors();
  CURLM* const multi = libcurl().curl_multi_init();
  if (multi == nullptr) throw_out_of_memory();
  libcurl().curl_multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, connections_to_a_server);
  for (const int fd : inheritable_descriptors()) {
    if (!of_the_caller.contains(fd)) fcntl(fd, F_SETFD, FD_CLOEXEC);
  }
  return {multi, [](void* handle) { libcurl().curl_multi_cleanup(static_cast<CURLM*>(handle)); }};
}

/// `has_answered`: an unusable file was good before, and is being replaced.
HttpCall::End end_of(CURLcode code, const std::string& trouble, bool has_answered) {
  const auto has = [&](const char* word) { return trouble.find(word) != std::string::npos; };
  if (code == CURLE_OK) return HttpCall::End::answered;
  const bool unusable = code == CURLE_SSL_CERTPROBLEM || code == CURLE_SSL_CACERT_BADFILE;
  const bool refused_by_server = has("alert") && has("certificate");
  const bool refused =
      code == CURLE_PEER_FAILED_VERIFICATION || refused_by_server || (unusable && !has_answered);
  return refused ? HttpCall::End::certificate_refused : HttpCall::End::failed;
}

/// Whether a setting is the text of a file, and not its name.
bool is_pem(std::string_view text) { return text.starts_with("-----BEGIN"); }

}  // namespace

std::string resolved_addresses(const std::string& host, int port, const CallOptions& call_options) {
  std::vector<std::string> found = resolve_in_digits(host, call_options);
  const auto has = [](const std::string& text, char what) {
    return text.find(what) != std::string::npos;
  };
  // libcurl accepts no zone here, and does not look up a host that is an IPv6 address.
  std::erase_if(found, [&](const std::string& address) { return has(address, '%'); });
  if (found.empty() || has(host, ':')) return "";
  return host + ":" + std::to_string(port) + ":" + joined(found, ",", in_brackets);
}

Error HttpCall::no_answer(const std::string& server) const {
  const bool refused = end == End::certificate_refused;
  return {refused ? ErrorKind::denied : ErrorKind::unavailable, server + ": " + trouble,
          refused ? Cause::certificate : Cause::none};
}

std::optional<microseconds> HttpCall::date() const {
  std::tm parts{};
  // The form that RFC 9110, section 5.6.7, requires of servers. dlock sets no locale for times.
  const std::string text = answer_field("date");
  if (strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts) == nullptr) return std::nullopt;
  return std::chrono::seconds(timegm(&parts));
}

/// A request in flight, from construction to destruction. It does not move in memory, because
/// libcurl points into it.
struct HttpClient::Transfer {
  /// `time` is the longest time to connect.
  Transfer(HttpClient& of, const HttpCall& call, milliseconds time);
  ~Transfer() {
    libcurl().curl_multi_remove_handle(static_cast<CURLM*>(client.multi_.get()), handle.get());
    std::erase(client.under_way_, this);
  }
  Transfer(const Transfer&) = delete;
  Transfer& operator=(const Transfer&) = delete;

  template <typename Value>
  CURLcode set(CURLoption option, Value value) const {
    return libcurl().curl_easy_setopt(handle.get(), option, value);
  }
  void choose_method(const std::string& method) const;
  void encrypt() const;
  void set_file(CURLoption file, CURLoption text, const std::string& given) const;
  void take_result(HttpCall& call);

  /// libcurl calls this with a part of the answer to `transfer`. Any result other than the part's
  /// size ends the transfer.
  static std::size_t receive(char* data, std::size_t size, std::size_t count, void* transfer) {
    std::string& answer = static_cast<Transfer*>(transfer)->answer;
    if (answer.size() + size * count > largest_answer) return 0;
    try {
      answer.append(data, size * count);
    } catch (const std::bad_alloc&) {
      return 0;  // an exception must not pass through libcurl
    }
    return size * count;
  }

  /// libcurl calls this with each line of the answer's header.
  static std::size_t receive_field(char* data, std::size_t size, std::size_t count,
                                   void* transfer) {
    std::string_view value(data, size * count);
    std::string name(take_until(value, ':'));
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    value.remove_prefix(std::min(value.size(), value.find_first_not_of(' ')));
    value = value.substr(0, value.find_first_of("\r\n"));
    static_cast<Transfer*>(transfer)->answer_fields[name] = value;
    return size * count;
  }

  /// libcurl calls this before it sends the request of `transfer`, and again before it repeats the
  /// request because a kept connection has ended without an answer. With `once`, this forbids the
  /// repetition.
  static int before_sending(void* transfer, char*, char*, int, int) {
    auto& of = *static_cast<Transfer*>(transfer);
    if (of.sent && of.once) return CURL_PREREQFUNC_ABORT;
    of.sent = true;
    return CURL_PREREQFUNC_OK;
  }

  HttpClient& client;
  CurlPtr handle{libcurl().curl_easy_init()};
  CurlListPtr headers;
  CurlListPtr connect_to;
  CurlListPtr resolved;
  std::string body;
  std::string answer;
  std::map<std::string, std::string> answer_fields;
  bool once;
  bool sent = false;  ///< at least in part
  bool done = false;
  CURLcode code = CURLE_OPERATION_TIMEDOUT;  ///< until it is done
  char trouble[CURL_ERROR_SIZE] = "";
};

HttpClient::Transfer::Transfer(HttpClient& of, const HttpCall& call, milliseconds time)
    : client(of), body(call.body), once(call.once) {
  if (handle == nullptr) throw_out_of_memory();
  if (client.multi_ == nullptr) client.multi_ = new_multi();
  append(headers, "Content-Type: application/json");
  // libcurl would sign this line without sending it. It sends one of its own before a body of 1
  // MiB.
  if (call.signed_for.empty()) append(headers, "Expect:");
  for (const std::string& field : call.fields) append(headers, field);
  if (!client.authorization_.empty()) append(headers, "Authorization: " + client.authorization_);
  append(connect_to, call.to.connect_to);
  append(resolved, call.to.resolved);
  set(CURLOPT_URL, call.to.url.c_str());
  set(CURLOPT_CONNECT_TO, connect_to.get());
  set(CURLOPT_RESOLVE, resolved.get());
  set(CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(CURLOPT_HTTPHEADER, headers.get());
  choose_method(call.method);
  if (!call.signed_for.empty()) {
    set(CURLOPT_AWS_SIGV4, call.signed_for.c_str());
    set(CURLOPT_USERPWD, call.signed_by.c_str());
  }
  set(CURLOPT_HEADERFUNCTION, &Transfer::receive_field);
  set(CURLOPT_HEADERDATA, static_cast<void*>(this));
  set(CURLOPT_WRITEFUNCTION, &Transfer::receive);
  set(CURLOPT_WRITEDATA, static_cast<void*>(this));
  set(CURLOPT_PREREQDATA, static_cast<void*>(this));
  // Before version 7.80 libcurl has no such callback; then any failed request may have been sent.
  sent = set(CURLOPT_PREREQFUNCTION, &Transfer::before_sending) != CURLE_OK;
  set(CURLOPT_ERRORBUFFER, trouble);
  set(CURLOPT_NOSIGNAL, 1L);
  // libcurl gives a silent address half of this time, and the default is minutes.
  const auto connect_by = std::clamp(time, milliseconds(1), longest_poll);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(connect_by.count()));
  set(CURLOPT_SOCKOPTFUNCTION, &close_on_exec);
  // No proxy: http_proxy is meant for the web.
  set(CURLOPT_PROXY, "");
  // As on dlock's own sockets: libcurl then notices a dead stream within a minute.
  set(CURLOPT_TCP_KEEPALIVE, 1L);
  set(CURLOPT_TCP_KEEPIDLE, 15L);
  set(CURLOPT_TCP_KEEPINTVL, 5L);
  encrypt();
  client.under_way_.push_back(this);
  libcurl().curl_multi_add_handle(static_cast<CURLM*>(client.multi_.get()), handle.get());
}

void HttpClient::Transfer::choose_method(const std::string& method) const {
  if (method == "GET") {
    set(CURLOPT_HTTPGET, 1L);
    return;
  }
  set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  set(CURLOPT_POSTFIELDS, body.c_str());
  if (method != "POST") set(CURLOPT_CUSTOMREQUEST, method.c_str());
}

/// Sets a file by its name, or its text, which libcurl copies.
void HttpClient::Transfer::set_file(CURLoption file, CURLoption text,
                                    const std::string& given) const {
  if (!is_pem(given)) {
    set(file, given.c_str());
    return;
  }
  curl_blob copy{const_cast<char*>(given.data()), given.size(), CURL_BLOB_COPY};
  set(text, &copy);
}

void HttpClient::Transfer::encrypt() const {
  if (!client.tls_) return;
  const TlsSettings& tls = *client.tls_;
  // libcurl's error names neither a bad file nor its contents, so check the files first.
  if (!client.files_checked_ && !is_pem(tls.ca) && !is_pem(tls.certificate)) client_context(tls);
  client.files_checked_ = true;
  std::error_code none;
  if (!tls.ca.empty()) {
    const bool folder = std::filesystem::is_directory(tls.ca, none);
    // A new handle has the system's file and directory, and would trust both.
    set(CURLOPT_CAPATH, folder ? tls.ca.c_str() : nullptr);
    if (folder) set(CURLOPT_CAINFO, nullptr);
    if (!folder) set_file(CURLOPT_CAINFO, CURLOPT_CAINFO_BLOB, tls.ca);
    // The file may be replaced while a lock is held; libcurl would cache it for a day.
    set(CURLOPT_CA_CACHE_TIMEOUT, 0L);
  }
  if (tls.certificate.empty()) return;
  set_file(CURLOPT_SSLCERT, CURLOPT_SSLCERT_BLOB, tls.certificate);
  set_file(CURLOPT_SSLKEY, CURLOPT_SSLKEY_BLOB, tls.key);
  // If the file now holds an encrypted key, OpenSSL would ask on the terminal.
  set(CURLOPT_KEYPASSWD, "");
}

void HttpClient::Transfer::take_result(HttpCall& call) {
  const std::string said = trouble;
  client.has_answered_ = client.has_answered_ || code == CURLE_OK;
  call.end = end_of(code, said, client.has_answered_);
  call.may_have_come = sent;
  if (code == CURLE_OK) {
    call.answer = std::move(answer);
    call.answer_fields = std::move(answer_fields);
    libcurl().curl_easy_getinfo(handle.get(), CURLINFO_RESPONSE_CODE, &call.status);
    return;
  }
  call.trouble = code == CURLE_OPERATION_TIMEDOUT    ? "no answer in time"
                 : code == CURLE_WRITE_ERROR         ? "an answer that is too large"
                 : code == CURLE_ABORTED_BY_CALLBACK ? "the connection ended before the answer"
                 : said.empty()                      ? libcurl().curl_easy_strerror(code)
                                                     : escaped(said);
}

HttpClient::HttpClient(std::optional<TlsSettings> tls) : tls_(std::move(tls)) {}

HttpClient::~HttpClient() { close(); }

void HttpClient::set_authorization(const std::string& value) {
  close_stream();
  authorization_ = value;
}

void HttpClient::work() {
  auto* const multi = static_cast<CURLM*>(multi_.get());
  int running = 0, left = 0;
  libcurl().curl_multi_perform(multi, &running);
  while (const CURLMsg* message = libcurl().curl_multi_info_read(multi, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    for (Transfer* transfer : under_way_) {
      if (transfer->handle.get() != message->easy_handle) continue;
      transfer->done = true;
      transfer->code = message->data.result;
    }
  }
}

bool HttpClient::wait(Deadline until, int cancel_fd) {
  // libcurl does not wake the poll when it should try the host's next address.
  const bool connects = std::any_of(under_way_.begin(), under_way_.end(),
                                    [](const Transfer* each) { return !each->sent; });
  const auto most = std::min(left_until(until), connects ? longest_poll_of_connect : longest_poll);
  curl_waitfd extra{cancel_fd, CURL_WAIT_POLLIN, 0};
  libcurl().curl_multi_poll(static_cast<CURLM*>(multi_.get()), &extra, cancel_fd >= 0 ? 1 : 0,
                            static_cast<int>(most.count()), nullptr);
  return !readable(cancel_fd);
}

void HttpClient::send(std::vector<HttpCall>& calls, const CallOptions& call_options) {
  std::deque<Transfer> transfers;
  for (const HttpCall& call : calls) {
    transfers.emplace_back(*this, call, left_until(call_options.deadline));
  }
  const auto all_done = [&] {
    return std::all_of(transfers.begin(), transfers.end(),
                       [](const Transfer& each) { return each.done; });
  };
  bool interrupted = false;
  work();
  if (call_options.sent != nullptr) call_options.sent->raise();
  while (!all_done() && !interrupted && BootClock::now() < call_options.deadline) {
    interrupted = !wait(call_options.deadline, call_options.cancel_fd);
    work();
  }
  for (std::size_t i = 0; i < calls.size(); ++i) transfers[i].take_result(calls[i]);
  if (interrupted) throw_interrupted();
}

void HttpClient::open_stream(const HttpCall& call) {
  close_stream();
  stream_ = std::make_unique<Transfer>(*this, call, longest_connect);
}

void HttpClient::close_stream() { stream_.reset(); }

std::variant<std::string, HttpClient::StreamEnd> HttpClient::next_line(Deadline until,
                                                                       int cancel_fd) {
  while (true) {
    if (stream_ == nullptr) return StreamEnd::broken;
    work();
    std::string& answer = stream_->answer;
    if (const auto end = answer.find('\n'); end != std::string::npos) {
      std::string line = answer.substr(0, end);
      answer.erase(0, end + 1);
      return line;
    }
    if (stream_->done) {
      // An error that is the whole answer has no line end.
      std::string rest = stream_->code == CURLE_OK ? std::move(answer) : "";
      close_stream();
      if (rest.empty()) return StreamEnd::broken;
      return rest;
    }
    if (BootClock::now() >= until) return StreamEnd::due;
    if (!wait(until, cancel_fd)) return StreamEnd::interrupted;
  }
}

void HttpClient::close() {
  close_stream();
  multi_.reset();
}

}  // namespace dlock
