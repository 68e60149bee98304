/* Sends pre-encoded requests over pipelined connections and counts the responses, with as little CPU as possible.
 *   cc -O2 -o pipelines pipelines.c;  ./pipelines SECONDS DEPTH < FILE
 * Each line of FILE is a port of this machine and a request as hexadecimal digits: one connection. Each connection has
 * DEPTH requests outstanding, and sends the next ones when all of them have responses. All responses of a connection
 * must have one length. Prints "RESPONSES SECONDS" and, for each connection, the number of its responses. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_CONNECTIONS = 64, LINE_BYTES = 1 << 16, BUFFER_BYTES = 1 << 20 };

struct connection {
    int fd;
    char *out;
    size_t out_bytes, in_bytes, left;
    long long responses;
};

static char buffer[BUFFER_BYTES];

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static void send_all(int fd, const char *data, size_t size) {
    while (size) {
        ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
        if (sent <= 0) fail("send");
        data += sent;
        size -= (size_t)sent;
    }
}

static void receive(int fd, char *to, size_t size) {
    while (size) {
        ssize_t got = recv(fd, to, size, 0);
        if (got <= 0) fail("recv");
        to += got;
        size -= (size_t)got;
    }
}

static void open_connection(struct connection *one, int port, const char *hex, int depth) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int yes = 1;
    size_t size = strlen(hex) / 2;
    one->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (one->fd < 0 || connect(one->fd, (struct sockaddr *)&address, sizeof address)) fail("connect");
    setsockopt(one->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    one->out_bytes = size * (size_t)depth;
    one->out = malloc(one->out_bytes);
    if (!one->out) fail("malloc");
    for (size_t i = 0; i < size; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) fail("a request is not hexadecimal");
        one->out[i] = (char)byte;
    }
    for (int i = 1; i < depth; i++) memcpy(one->out + size * (size_t)i, one->out, size);
    send_all(one->fd, one->out, size);
    receive(one->fd, buffer, 4);
    uint32_t length;
    memcpy(&length, buffer, 4);
    length = ntohl(length);
    if (length > BUFFER_BYTES) fail("a response is too long");
    receive(one->fd, buffer, length);
    one->in_bytes = (length + 4) * (size_t)depth;
}

int main(int count, char **arguments) {
    static struct connection connections[MAX_CONNECTIONS];
    static char line[LINE_BYTES];
    int opened = 0, polled = epoll_create1(0);
    if (count != 3 || polled < 0) fail("usage: pipelines SECONDS DEPTH");
    double seconds = atof(arguments[1]);
    int depth = atoi(arguments[2]);
    while (opened < MAX_CONNECTIONS && fgets(line, sizeof line, stdin)) {
        char *space = strchr(line, ' ');
        if (!space) fail("a line needs a port and a request");
        space[1 + strspn(space + 1, "0123456789abcdef")] = 0;
        open_connection(&connections[opened], atoi(line), space + 1, depth);
        struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)opened};
        if (epoll_ctl(polled, EPOLL_CTL_ADD, connections[opened].fd, &event)) fail("epoll_ctl");
        opened++;
    }
    double begin_s = now_s(), end_s = begin_s + seconds;
    int busy = opened;
    for (int i = 0; i < opened; i++) {
        connections[i].left = connections[i].in_bytes;
        send_all(connections[i].fd, connections[i].out, connections[i].out_bytes);
    }
    while (busy) {
        struct epoll_event events[MAX_CONNECTIONS];
        int ready = epoll_wait(polled, events, MAX_CONNECTIONS, -1);
        for (int i = 0; i < ready; i++) {
            struct connection *one = &connections[events[i].data.u32];
            size_t most = one->left < BUFFER_BYTES ? one->left : BUFFER_BYTES;
            ssize_t got = recv(one->fd, buffer, most, 0);
            if (got <= 0) fail("recv");
            one->left -= (size_t)got;
            if (one->left) continue;
            one->responses += depth;
            if (now_s() < end_s) {
                one->left = one->in_bytes;
                send_all(one->fd, one->out, one->out_bytes);
            } else {
                busy--;
            }
        }
    }
    long long total = 0;
    for (int i = 0; i < opened; i++) total += connections[i].responses;
    printf("%lld %.6f\n", total, now_s() - begin_s);
    for (int i = 0; i < opened; i++) printf("%lld\n", connections[i].responses);
    return 0;
}
