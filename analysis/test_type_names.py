"""One meaning per type name: definitions are found, and held to the table."""

from pathlib import Path

from analysis.type_names import definitions, findings, main

ROW = {"name": "Place", "owner": "a.hpp", "also": "", "meaning": "where"}


def test_definitions_are_found_and_declarations_are_not():
    text = """
struct Place;
struct Place {
template <int n>
class Team final : public Plan {
enum class Form : int { a };
union Word { int a; };
  struct __align__(16) Inner {
friend class Other;
void take(struct Odd*);
// struct InComment {
"""
    assert definitions({"a.hpp": text}) == {name: {"a.hpp"} for name in ("Place", "Team", "Form", "Word", "Inner")}
    assert definitions({"a_test.cpp": text}) == {}


def test_a_second_owner_is_a_finding():
    assert findings({"Place": {"a.hpp"}}, []) == []
    assert len(findings({"Place": {"a.hpp", "b.hpp"}}, [])) == 1
    assert findings({"Place": {"a.hpp", "b.hpp"}}, [ROW]) == ["b.hpp: Place belongs to docs/type_names.csv's owner; take another name"]
    assert findings({"Place": {"a.hpp", "b.hpp"}}, [ROW | {"also": "b.hpp"}]) == []


def test_a_row_must_be_true():
    assert len(findings({}, [ROW])) == 1
    assert len(findings({"Place": {"a.hpp"}}, [ROW, ROW])) == 1
    assert len(findings({"Place": {"a.hpp"}}, [ROW | {"meaning": ""}])) == 1


def test_the_project_keeps_its_table(capsys):
    assert main([str(Path(__file__).parents[1])]) == 0, capsys.readouterr().out
