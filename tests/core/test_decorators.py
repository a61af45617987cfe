"""@stop, @cleanup, @teardown: which methods are found, and in which order."""

from nightjar.core.calling.decorators import cleanup, decorated_methods, stop, teardown


class Parent:
    @stop
    async def zebra(self, state): ...

    @stop(priority=10)
    async def first(self, state): ...

    @stop
    async def apple(self, state): ...

    @stop(priority=-1)
    async def last(self, state): ...

    @cleanup(priority=5)
    async def close(self, state): ...

    @teardown()
    async def leave(self): ...

    async def plain(self, state): ...


class Child(Parent):
    @stop
    async def mango(self, state): ...

    async def apple(self, state):
        """Takes the mark away by overriding it."""


def names(owner, mark):
    return [method.__name__ for method in decorated_methods(owner, mark)]


def test_methods_are_found_by_mark_with_inherited_ones_in_the_order_of_priority_and_name():
    assert names(Parent(), "stop_priority") == ["first", "apple", "zebra", "last"]
    assert names(Child(), "stop_priority") == ["first", "mango", "zebra", "last"]
    assert (names(Parent(), "cleanup_priority"), names(Parent(), "teardown_priority")) == (["close"], ["leave"])


def test_methods_are_bound_and_decorated_functions_stay_the_same():
    def function(state): ...

    parent = Parent()
    assert all(method.__self__ is parent for method in decorated_methods(parent, "stop_priority"))
    assert stop(function) is function
