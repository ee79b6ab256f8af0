// What programs do with ZooKeeper's C client. Arguments: host:port, and a part of the names of the tests to run.
// A failed check ends the test it is in, not the program; what it prints is read by the suite that started it.

#include <pthread.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zookeeper/zookeeper.h>

enum { SESSION_MS = 10000, LIMIT_MS = 60000, QUIET_MS = 200, TRIES_MAX = 20, PATH_BYTES = 256, EVENTS_MAX = 64, MODES = 7 };

static const char *address;
static jmp_buf failed;
static char reason[512];

#define FAIL(...) (snprintf(reason, sizeof reason, __VA_ARGS__), longjmp(failed, 1))
#define CHECK(condition) do { if (!(condition)) FAIL("line %d: %s", __LINE__, #condition); } while (0)
#define EQUAL(actual, expected) do { \
    long long got_ = (actual), wanted_ = (expected); \
    if (got_ != wanted_) FAIL("line %d: %s is %lld, expected %lld", __LINE__, #actual, got_, wanted_); \
  } while (0)

// Events in the order they came; a session event has its state as type, negative.
struct events {
  pthread_mutex_t lock;
  int count, taken;
  struct { int type; char path[PATH_BYTES]; } all[EVENTS_MAX];
};

static void pause_ms(int ms) {
  struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};
  nanosleep(&time, NULL);
}

static void watch(zhandle_t *handle, int type, int state, const char *path, void *context) {
  (void)handle;
  struct events *events = context;
  pthread_mutex_lock(&events->lock);
  if (events->count < EVENTS_MAX) {
    events->all[events->count].type = type == ZOO_SESSION_EVENT ? -state : type;
    snprintf(events->all[events->count++].path, PATH_BYTES, "%s", path ? path : "");
  }
  pthread_mutex_unlock(&events->lock);
}

static struct events *new_events(void) {
  struct events *events = calloc(1, sizeof *events);
  pthread_mutex_init(&events->lock, NULL);
  return events;
}

// Waits for the next event; session events are passed over when `type` is none.
static void expect(struct events *events, int type, const char *path) {
  for (int waited = 0; waited < LIMIT_MS; waited += 5) {
    pthread_mutex_lock(&events->lock);
    while (type > 0 && events->taken < events->count && events->all[events->taken].type < 0) events->taken++;
    int at = events->taken < events->count ? events->taken++ : -1;
    pthread_mutex_unlock(&events->lock);
    if (at >= 0) {
      EQUAL(events->all[at].type, type);
      if (type > 0 && strcmp(events->all[at].path, path) != 0) FAIL("event of %s, expected %s", events->all[at].path, path);
      return;
    }
    pause_ms(5);
  }
  FAIL("no event of type %d for %s", type, path ? path : "the session");
}

static void expect_none(struct events *events) {
  pause_ms(QUIET_MS);
  pthread_mutex_lock(&events->lock);
  int left = 0;
  for (int at = events->taken; at < events->count; at++) left += events->all[at].type > 0;
  pthread_mutex_unlock(&events->lock);
  EQUAL(left, 0);
}

static zhandle_t *connect_as(const clientid_t *id, struct events *events) {
  zhandle_t *handle = zookeeper_init(address, watch, SESSION_MS, id, events, 0);
  CHECK(handle != NULL);
  expect(events, -ZOO_CONNECTED_STATE, NULL);
  return handle;
}

static zhandle_t *connected(void) { return connect_as(NULL, new_events()); }

static void create(zhandle_t *handle, const char *path, int mode) {
  EQUAL(zoo_create(handle, path, "data", 4, &ZOO_OPEN_ACL_UNSAFE, mode, NULL, 0), ZOK);
}

// A node for one test.
static void root(zhandle_t *handle, char *path) {
  static int count;
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(path, PATH_BYTES, "/c-%lld-%ld-%d", (long long)now.tv_sec, now.tv_nsec, count++);
  create(handle, path, ZOO_PERSISTENT);
}

static const char *below(const char *path, const char *name) {
  static char joined[8][PATH_BYTES];
  static int at;
  char *place = joined[at++ % 8];
  snprintf(place, PATH_BYTES, "%.180s/%.60s", path, name);
  return place;
}

// Waits until this client sees a node, or sees it gone: ZooKeeper promises no common view of two clients.
static void until_exists(zhandle_t *handle, const char *path, bool exists) {
  struct Stat stat;
  for (int waited = 0; zoo_exists(handle, path, 0, &stat) != (exists ? ZOK : ZNONODE); waited += 5) {
    CHECK(waited < LIMIT_MS);
    pause_ms(5);
  }
}

static void nodes(void) {
  char path[PATH_BYTES], buffer[64];
  int length = sizeof buffer;
  struct Stat stat;
  struct String_vector children;
  zhandle_t *handle = connected();
  root(handle, path);
  EQUAL(zoo_get(handle, path, 0, buffer, &length, &stat), ZOK);
  EQUAL(length, 4);
  CHECK(memcmp(buffer, "data", 4) == 0);
  EQUAL(zoo_set2(handle, path, "new", 3, 0, &stat), ZOK);
  EQUAL(stat.version, 1);
  EQUAL(zoo_set(handle, path, "", 0, 0), ZBADVERSION);
  EQUAL(zoo_create(handle, path, "", 0, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0), ZNODEEXISTS);
  EQUAL(zoo_create2(handle, below(path, "a"), NULL, -1, &ZOO_OPEN_ACL_UNSAFE, 0, NULL, 0, &stat), ZOK);
  EQUAL(stat.dataLength, 0);
  EQUAL(zoo_get_children2(handle, path, 0, &children, &stat), ZOK);
  EQUAL(children.count, 1);
  CHECK(strcmp(children.data[0], "a") == 0);
  deallocate_String_vector(&children);
  EQUAL(zoo_delete(handle, path, -1), ZNOTEMPTY);
  EQUAL(zoo_delete(handle, below(path, "a"), 7), ZBADVERSION);
  EQUAL(zoo_delete(handle, below(path, "a"), 0), ZOK);
  EQUAL(zoo_exists(handle, below(path, "a"), 0, &stat), ZNONODE);
  zookeeper_close(handle);
}

static void modes(void) {
  char path[PATH_BYTES], created[PATH_BYTES];
  const int all[MODES] = {ZOO_PERSISTENT, ZOO_EPHEMERAL, ZOO_PERSISTENT_SEQUENTIAL, ZOO_EPHEMERAL_SEQUENTIAL, ZOO_CONTAINER,
    ZOO_PERSISTENT_WITH_TTL, ZOO_PERSISTENT_SEQUENTIAL_WITH_TTL};
  zhandle_t *watcher = connected(), *handle = connected();
  root(watcher, path);
  for (int mode = 0; mode < MODES; mode++) {
    char name[16];
    struct Stat stat;
    snprintf(name, sizeof name, "m%d-", mode);
    bool ttl = all[mode] == ZOO_PERSISTENT_WITH_TTL || all[mode] == ZOO_PERSISTENT_SEQUENTIAL_WITH_TTL;
    EQUAL(zoo_create2_ttl(handle, below(path, name), "x", 1, &ZOO_OPEN_ACL_UNSAFE, all[mode], ttl ? 3600000 : -1, created,
            sizeof created, &stat), ZOK);
    bool ephemeral = all[mode] == ZOO_EPHEMERAL || all[mode] == ZOO_EPHEMERAL_SEQUENTIAL;
    EQUAL(stat.ephemeralOwner == zoo_client_id(handle)->client_id, ephemeral);
    bool sequential = all[mode] != ZOO_PERSISTENT && all[mode] != ZOO_EPHEMERAL && all[mode] != ZOO_CONTAINER
      && all[mode] != ZOO_PERSISTENT_WITH_TTL;
    EQUAL(strlen(created), strlen(below(path, name)) + (sequential ? 10 : 0));
  }
  zookeeper_close(handle);
  until_exists(watcher, below(path, "m1-"), false);
  struct String_vector children;
  EQUAL(zoo_get_children(watcher, path, 0, &children), ZOK);
  EQUAL(children.count, MODES - 2);
  deallocate_String_vector(&children);
  zookeeper_close(watcher);
}

static void containers_and_ttls(void) {
  char path[PATH_BYTES];
  zhandle_t *handle = connected();
  root(handle, path);
  EQUAL(zoo_create_ttl(handle, below(path, "ttl"), "", 0, &ZOO_OPEN_ACL_UNSAFE, ZOO_PERSISTENT_WITH_TTL, 100, NULL, 0), ZOK);
  create(handle, below(path, "container"), ZOO_CONTAINER);
  create(handle, below(path, "container/child"), ZOO_PERSISTENT);
  EQUAL(zoo_delete(handle, below(path, "container/child"), -1), ZOK);
  until_exists(handle, below(path, "ttl"), false);
  until_exists(handle, below(path, "container"), false);
  zookeeper_close(handle);
}

static void multis(void) {
  char path[PATH_BYTES], created[PATH_BYTES];
  struct Stat stat;
  zoo_op_t ops[3];
  zoo_op_result_t results[3];
  zhandle_t *handle = connected();
  root(handle, path);
  zoo_create_op_init(&ops[0], below(path, "a"), "1", 1, &ZOO_OPEN_ACL_UNSAFE, 0, created, sizeof created);
  zoo_check_op_init(&ops[1], path, 0);
  zoo_set_op_init(&ops[2], below(path, "a"), "2", 1, 0, &stat);
  EQUAL(zoo_multi(handle, 3, ops, results), ZOK);
  EQUAL(stat.version, 1);
  zoo_delete_op_init(&ops[0], below(path, "a"), -1);
  zoo_check_op_init(&ops[1], path, 9);
  zoo_set_op_init(&ops[2], path, "2", 1, 0, &stat);
  EQUAL(zoo_multi(handle, 3, ops, results), ZBADVERSION);
  EQUAL(results[0].err, ZOK);
  EQUAL(results[1].err, ZBADVERSION);
  EQUAL(results[2].err, ZRUNTIMEINCONSISTENCY);
  EQUAL(zoo_exists(handle, below(path, "a"), 0, &stat), ZOK);
  zookeeper_close(handle);
}

static void auth_done(int code, const void *context) { *(volatile int *)context = code; }

static void add_auth(zhandle_t *handle) {
  volatile int code = 1;
  EQUAL(zoo_add_auth(handle, "digest", "u:p", 3, auth_done, (const void *)&code), ZOK);
  for (int waited = 0; code == 1; waited += 5) {
    CHECK(waited < LIMIT_MS);
    pause_ms(5);
  }
  EQUAL(code, ZOK);
}

static void acls(void) {
  char path[PATH_BYTES], buffer[64];
  int length = sizeof buffer;
  struct ACL_vector acl;
  struct Stat stat;
  zhandle_t *owner = connected(), *other = connected();
  root(owner, path);
  add_auth(owner);
  const char *secret = below(path, "secret");
  EQUAL(zoo_create(owner, secret, "secret", 6, &ZOO_CREATOR_ALL_ACL, 0, NULL, 0), ZOK);
  int code;
  for (int waited = 0; (code = zoo_get(other, secret, 0, buffer, &length, &stat)) == ZNONODE; waited += 5) {
    CHECK(waited < LIMIT_MS);
    pause_ms(5);
  }
  EQUAL(code, ZNOAUTH);
  add_auth(other);
  EQUAL(zoo_get(other, secret, 0, buffer, &length, &stat), ZOK);
  EQUAL(zoo_get_acl(owner, secret, &acl, &stat), ZOK);
  EQUAL(acl.count, 1);
  CHECK(strcmp(acl.data[0].id.scheme, "digest") == 0);
  deallocate_ACL_vector(&acl);
  EQUAL(zoo_set_acl(owner, secret, stat.aversion, &ZOO_READ_ACL_UNSAFE), ZOK);
  EQUAL(zoo_set(owner, secret, "", 0, -1), ZNOAUTH);
  zookeeper_close(owner);
  zookeeper_close(other);
}

static void one_shot_watches(void) {
  char path[PATH_BYTES], buffer[64];
  int length = sizeof buffer;
  struct Stat stat;
  struct String_vector names;
  struct events *data = new_events(), *children = new_events(), *exists = new_events(), *removed = new_events();
  zhandle_t *handle = connected(), *other = connected();
  root(handle, path);
  EQUAL(zoo_wget(handle, path, watch, data, buffer, &length, &stat), ZOK);
  EQUAL(zoo_wget_children(handle, path, watch, children, &names), ZOK);
  deallocate_String_vector(&names);
  EQUAL(zoo_wexists(handle, below(path, "a"), watch, exists, &stat), ZNONODE);
  EQUAL(zoo_wexists(handle, below(path, "b"), watch, removed, &stat), ZNONODE);
  EQUAL(zoo_remove_watches(handle, below(path, "b"), ZWATCHTYPE_DATA, watch, removed, 0), ZOK);
  EQUAL(zoo_set(other, path, "1", 1, -1), ZOK);
  EQUAL(zoo_set(other, path, "2", 1, -1), ZOK);
  expect(data, ZOO_CHANGED_EVENT, path);
  create(other, below(path, "a"), ZOO_PERSISTENT);
  create(other, below(path, "b"), ZOO_PERSISTENT);
  expect(exists, ZOO_CREATED_EVENT, below(path, "a"));
  expect(children, ZOO_CHILD_EVENT, path);
  expect_none(data);
  expect_none(children);
  zookeeper_close(handle);
  zookeeper_close(other);
}

static void sessions(void) {
  char path[PATH_BYTES];
  struct Stat stat;
  struct events *states = new_events();
  zhandle_t *handle = connect_as(NULL, states), *other = connected();
  EQUAL(zoo_recv_timeout(handle), SESSION_MS);
  root(handle, path);
  create(handle, below(path, "e"), ZOO_EPHEMERAL);
  clientid_t id = *zoo_client_id(handle);
  // A second connection takes the session over, while the first client cannot take it back: nobody listens on port 1.
  EQUAL(zoo_set_servers(handle, "127.0.0.1:1"), ZOK);
  until_exists(other, below(path, "e"), true);
  EQUAL(zoo_exists(other, below(path, "e"), 0, &stat), ZOK);
  EQUAL(stat.ephemeralOwner, id.client_id);
  // The first client may take the session back a last time, at the address it has resolved before, and once more.
  for (int tries = 0; zoo_exists(other, below(path, "e"), 0, &stat) == ZOK; tries++) {
    CHECK(tries < TRIES_MAX);
    zhandle_t *mover = connect_as(&id, new_events());
    EQUAL(zoo_client_id(mover)->client_id, id.client_id);
    // This call sends the close and does not wait for the answer.
    zookeeper_close(mover);
    for (int waited = 0; waited < 1000 && zoo_exists(other, below(path, "e"), 0, &stat) == ZOK; waited += 5) pause_ms(5);
  }
  EQUAL(zoo_set_servers(handle, address), ZOK);
  for (int waited = 0; !is_unrecoverable(handle); waited += 5) {
    CHECK(waited < LIMIT_MS);
    pause_ms(5);
  }
  zookeeper_close(handle);
  zookeeper_close(other);
}

static void restart(void) {
  char path[PATH_BYTES], buffer[64];
  int length = sizeof buffer;
  struct Stat stat;
  struct events *states = new_events(), *changed = new_events(), *gone = new_events(), *born = new_events();
  zhandle_t *handle = connect_as(NULL, states);
  root(handle, path);
  create(handle, below(path, "e"), ZOO_EPHEMERAL);
  create(handle, below(path, "goes"), ZOO_PERSISTENT);
  EQUAL(zoo_wget(handle, path, watch, changed, buffer, &length, &stat), ZOK);
  EQUAL(zoo_wexists(handle, below(path, "goes"), watch, gone, &stat), ZOK);
  EQUAL(zoo_wexists(handle, below(path, "new"), watch, born, &stat), ZNONODE);
  int64_t session = zoo_client_id(handle)->client_id;
  printf("restart\n");
  CHECK(fgets(buffer, sizeof buffer, stdin) != NULL);
  expect(states, -ZOO_CONNECTING_STATE, NULL);
  expect(states, -ZOO_CONNECTED_STATE, NULL);
  EQUAL(zoo_client_id(handle)->client_id, session);
  EQUAL(zoo_exists(handle, below(path, "e"), 0, &stat), ZOK);
  EQUAL(stat.ephemeralOwner, session);
  expect_none(changed);
  zhandle_t *other = connected();
  EQUAL(zoo_set(other, path, "after", 5, -1), ZOK);
  EQUAL(zoo_delete(other, below(path, "goes"), -1), ZOK);
  create(other, below(path, "new"), ZOO_PERSISTENT);
  expect(changed, ZOO_CHANGED_EVENT, path);
  expect(gone, ZOO_DELETED_EVENT, below(path, "goes"));
  expect(born, ZOO_CREATED_EVENT, below(path, "new"));
  zookeeper_close(handle);
  zookeeper_close(other);
}

int main(int count, char **arguments) {
  static const struct { const char *name; void (*run)(void); } tests[] = {
    {"nodes", nodes}, {"modes", modes}, {"containers_and_ttls", containers_and_ttls}, {"multis", multis}, {"acls", acls},
    {"one_shot_watches", one_shot_watches}, {"sessions", sessions}, {"restart", restart},
  };
  if (count < 2) return 2;
  address = arguments[1];
  zoo_set_debug_level(ZOO_LOG_LEVEL_ERROR);
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (size_t at = 0; at < sizeof tests / sizeof *tests; at++) {
    if (count > 2 && !strstr(tests[at].name, arguments[2])) continue;
    if (setjmp(failed) == 0) {
      tests[at].run();
      printf("ok %s\n", tests[at].name);
    } else {
      printf("FAIL %s: %s\n", tests[at].name, reason);
    }
  }
  printf("skip persistent_watches: this client has none\n");
  printf("end\n");
  return 0;
}
